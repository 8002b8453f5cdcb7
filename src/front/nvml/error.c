/* The text of an error, which a program asks for where there is no driver, too. */
#include "front/driver.h"
#include "front/nvml/hooks.h"

/* Every other function gives a code of the library then; a code is no text. */
const char *hook_nvmlErrorString(nvmlReturn_t result)
{
	return driver_handle() ? real_nvmlErrorString(result)
			       : "No driver: this process is in no slice";
}
