/* Functions that change a GPU for all who use it: its modes, clocks, limits of power, fans,
 * counters, instances. The driver lets root call them, and others whom an administrator let. In a
 * slice all are refused as the driver refuses a user without the right, whoever calls: other slices
 * are on the same GPU. Which functions these are says symbol-classes.tsv (class change), and those
 * that change the caller alone are in decisions.tsv. This keeps mistakes off, and no attacks: a
 * root that bypasses the front reaches the driver. */
#include "base/nvml_abi.h"
#include "front/driver.h"
#include "front/library.h"
#include "front/nvml/hooks.h"

nvmlReturn_t change_refused(uint32_t index);

/* The function by its number among the exported ones. A driver that is not there, lacks the
 * function or is not initialised says that. */
__attribute__((visibility("hidden"), used)) nvmlReturn_t change_refused(uint32_t index)
{
	nvmlReturn_t (*real)(void) = (nvmlReturn_t(*)(void))driver_resolve(index);
	unsigned int count;

	if ((void (*)(void))real == front_library.missing ||
	    (void (*)(void))real == front_library.no_driver)
		return real();
	nvmlReturn_t result = real_nvmlDeviceGetCount_v2(&count);
	return result == NVML_SUCCESS ? NVML_ERROR_NO_PERMISSION : result;
}
