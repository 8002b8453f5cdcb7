/* The driver's modules, as /proc/devices names their device numbers. When systemd starts a service,
 * it looks these up for DeviceAllow=. So nodes of a module that is loaded later stay closed to the
 * service until it is started anew. */
#pragma once

enum device_bits {
	DEVICE_GPUS = 1u << 0, /* nvidia */
	DEVICE_UVM = 1u << 1,  /* nvidia-uvm, which CUDA needs beside it */
};

/* Those that are loaded now. */
unsigned devices_loaded(void);
