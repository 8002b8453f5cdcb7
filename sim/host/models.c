#include "host/models.h"

#include <string.h>

#include "base/macros.h"

#define PCI_ID(device) ((uint32_t)(device) << 16 | 0x10deu)
#define GB_PER_S(n) ((n)*1000000000ull)

/* Figures that chips of one compute capability share: CUDA's table of limits by compute capability.
 */
#define LIMITS(threads, blocks, shared, optin)                          \
	.max_threads_per_sm = (threads), .max_blocks_per_sm = (blocks), \
	.shared_per_sm = KIB(shared), .shared_per_block_optin = KIB(optin)
#define CHIP(name, major, minor) .arch = SIM_ARCH_##name, .cc_major = (major), .cc_minor = (minor)
#define VOLTA CHIP(VOLTA, 7, 0), LIMITS(2048, 32, 96, 96), .copy_engines = 6
#define TURING CHIP(TURING, 7, 5), LIMITS(1024, 16, 64, 64), .copy_engines = 3
#define AMPERE CHIP(AMPERE, 8, 0), LIMITS(2048, 32, 164, 163), .copy_engines = 3
#define AMPERE_8_6 CHIP(AMPERE, 8, 6), LIMITS(1536, 16, 100, 99), .copy_engines = 2
#define ADA CHIP(ADA, 8, 9), LIMITS(1536, 24, 100, 99), .copy_engines = 2
#define HOPPER CHIP(HOPPER, 9, 0), LIMITS(2048, 32, 228, 227), .copy_engines = 3
#define BLACKWELL_10_0 CHIP(BLACKWELL, 10, 0), LIMITS(2048, 32, 228, 227), .copy_engines = 4
#define BLACKWELL_10_3 CHIP(BLACKWELL, 10, 3), LIMITS(2048, 32, 228, 227), .copy_engines = 4
#define BLACKWELL_11_0 CHIP(BLACKWELL, 11, 0), LIMITS(1536, 24, 228, 227), .copy_engines = 2
#define BLACKWELL_12_0 CHIP(BLACKWELL, 12, 0), LIMITS(1536, 24, 100, 99), .copy_engines = 2

/* Bytes: all, of it the driver's, and of one context. */
#define MEMORY(total, reserved, context) \
	.memory_total = MIB(total), .memory_reserved = MIB(reserved), .context_bytes = MIB(context)
#define CLOCKS(sm, memory, video) \
	.clock_sm_mhz = (sm), .clock_mem_mhz = (memory), .clock_video_mhz = (video)
#define MEMORY_BUS(bits, l2, gb_per_s) \
	.bus_width = (bits), .l2_bytes = (l2), .bandwidth_memory = GB_PER_S(gb_per_s)
/* Host link: on GH200, GB200 and GB300 NVLink to the CPU, for which nvidia-smi shows a PCIe link
 * too. */
#define HOST_LINK(generation, gb_per_s) \
	.pcie_gen = (generation), .pcie_width = 16, .bandwidth_pcie = GB_PER_S(gb_per_s)
#define POWER(limit, min, idle) \
	.power_limit_w = (limit), .power_min_w = (min), .power_idle_w = (idle)

/* clang-format off */
static const struct sim_model models[] = {
	{ .key = "a30-24gb", .name = "NVIDIA A30",
	  .pci_device_id = PCI_ID(0x20b7), .pci_subsystem_id = PCI_ID(0x1532),
	  AMPERE, .sm_count = 56, .mig_class = "a30", .ecc = true,
	  MEMORY(24576, 557, 320), MEMORY_BUS(3072, MIB(24), 933),
	  CLOCKS(1440, 1215, 1305), POWER(165, 100, 28), HOST_LINK(4, 26) },
	{ .key = "a100-40gb", .name = "NVIDIA A100-SXM4-40GB",
	  .pci_device_id = PCI_ID(0x20b0), .pci_subsystem_id = PCI_ID(0x134f),
	  AMPERE, .sm_count = 108, .mig_class = "g7", .ecc = true,
	  MEMORY(40960, 571, 418), MEMORY_BUS(5120, MIB(40), 1555),
	  CLOCKS(1410, 1215, 1275), POWER(400, 100, 55), HOST_LINK(4, 26) },
	{ .key = "a100-pcie-40gb", .name = "NVIDIA A100-PCIE-40GB",
	  .pci_device_id = PCI_ID(0x20f1), .pci_subsystem_id = PCI_ID(0x145f),
	  AMPERE, .sm_count = 108, .mig_class = "g7", .ecc = true,
	  MEMORY(40960, 571, 418), MEMORY_BUS(5120, MIB(40), 1555),
	  CLOCKS(1410, 1215, 1275), POWER(250, 150, 35), HOST_LINK(4, 26) },
	{ .key = "a100-80gb", .name = "NVIDIA A100-SXM4-80GB",
	  .pci_device_id = PCI_ID(0x20b2), .pci_subsystem_id = PCI_ID(0x1463),
	  AMPERE, .sm_count = 108, .mig_class = "g7", .ecc = true,
	  MEMORY(81920, 669, 426), MEMORY_BUS(5120, MIB(40), 2039),
	  CLOCKS(1410, 1593, 1275), POWER(400, 100, 60), HOST_LINK(4, 26) },
	{ .key = "a100-pcie-80gb", .name = "NVIDIA A100 80GB PCIe",
	  .pci_device_id = PCI_ID(0x20b5), .pci_subsystem_id = PCI_ID(0x1533),
	  AMPERE, .sm_count = 108, .mig_class = "g7", .ecc = true,
	  MEMORY(81920, 669, 426), MEMORY_BUS(5120, MIB(40), 1935),
	  CLOCKS(1410, 1512, 1275), POWER(300, 150, 44), HOST_LINK(4, 26) },
	{ .key = "a100-pcie-80gb-mirrored", .name = "NVIDIA A100 80GB PCIe",
	  .pci_device_id = PCI_ID(0x20b5), .pci_subsystem_id = PCI_ID(0x1533),
	  AMPERE, .sm_count = 108, .mig_class = "g7_mirrored", .ecc = true,
	  MEMORY(81920, 669, 426), MEMORY_BUS(5120, MIB(40), 1935),
	  CLOCKS(1410, 1512, 1275), POWER(300, 150, 44), HOST_LINK(4, 26) },
	{ .key = "h100-80gb", .name = "NVIDIA H100 80GB HBM3",
	  .pci_device_id = PCI_ID(0x2330), .pci_subsystem_id = PCI_ID(0x16c1),
	  HOPPER, .sm_count = 132, .mig_class = "g7", .ecc = true,
	  MEMORY(81559, 551, 520), MEMORY_BUS(5120, MIB(50), 3350),
	  CLOCKS(1980, 2619, 1545), POWER(700, 200, 70), HOST_LINK(5, 55) },
	{ .key = "h100-pcie-80gb", .name = "NVIDIA H100 PCIe",
	  .pci_device_id = PCI_ID(0x2331), .pci_subsystem_id = PCI_ID(0x1626),
	  HOPPER, .sm_count = 114, .mig_class = "g7", .ecc = true,
	  MEMORY(81559, 551, 510), MEMORY_BUS(5120, MIB(50), 2039),
	  CLOCKS(1755, 1593, 1545), POWER(350, 200, 48), HOST_LINK(5, 55) },
	{ .key = "h100-pcie-80gb-mirrored", .name = "NVIDIA H100 PCIe",
	  .pci_device_id = PCI_ID(0x2331), .pci_subsystem_id = PCI_ID(0x1626),
	  HOPPER, .sm_count = 114, .mig_class = "g7_mirrored", .ecc = true,
	  MEMORY(81559, 551, 510), MEMORY_BUS(5120, MIB(50), 2039),
	  CLOCKS(1755, 1593, 1545), POWER(350, 200, 48), HOST_LINK(5, 55) },
	{ .key = "h100-nvl-94gb", .name = "NVIDIA H100 NVL",
	  .pci_device_id = PCI_ID(0x2321), .pci_subsystem_id = PCI_ID(0x1839),
	  HOPPER, .sm_count = 132, .mig_class = "g7", .ecc = true,
	  MEMORY(95830, 561, 520), MEMORY_BUS(6016, MIB(50), 3938),
	  CLOCKS(1785, 2619, 1545), POWER(400, 200, 60), HOST_LINK(5, 55) },
	{ .key = "gh200-96gb", .name = "NVIDIA GH200 480GB",
	  .pci_device_id = PCI_ID(0x2342), .pci_subsystem_id = PCI_ID(0x16eb),
	  HOPPER, .sm_count = 132, .mig_class = "g7", .ecc = true,
	  MEMORY(97871, 616, 530), MEMORY_BUS(6144, MIB(50), 4022),
	  CLOCKS(1980, 2619, 1545), POWER(900, 100, 75), HOST_LINK(5, 400) },
	{ .key = "h100-96gb", .name = "NVIDIA H100 96GB HBM3",
	  .pci_device_id = PCI_ID(0x233d), .pci_subsystem_id = PCI_ID(0x18fe),
	  HOPPER, .sm_count = 132, .mig_class = "g7", .ecc = true,
	  MEMORY(97871, 616, 530), MEMORY_BUS(6144, MIB(50), 4022),
	  CLOCKS(1980, 2619, 1545), POWER(700, 200, 72), HOST_LINK(5, 55) },
	{ .key = "gh200-144gb", .name = "NVIDIA GH200 144G HBM3e",
	  .pci_device_id = PCI_ID(0x2348), .pci_subsystem_id = PCI_ID(0x18d2),
	  HOPPER, .sm_count = 132, .mig_class = "g7", .ecc = true,
	  MEMORY(146831, 616, 530), MEMORY_BUS(6144, MIB(60), 4917),
	  CLOCKS(1980, 3201, 1545), POWER(900, 100, 80), HOST_LINK(5, 400) },
	{ .key = "h200-141gb", .name = "NVIDIA H200",
	  .pci_device_id = PCI_ID(0x2335), .pci_subsystem_id = PCI_ID(0x18be),
	  HOPPER, .sm_count = 132, .mig_class = "g7", .ecc = true,
	  MEMORY(143771, 616, 526), MEMORY_BUS(6144, MIB(60), 4800),
	  CLOCKS(1980, 3201, 1545), POWER(700, 200, 75), HOST_LINK(5, 55) },
	{ .key = "h200-nvl-141gb", .name = "NVIDIA H200 NVL",
	  .pci_device_id = PCI_ID(0x233b), .pci_subsystem_id = PCI_ID(0x1996),
	  HOPPER, .sm_count = 132, .mig_class = "g7", .ecc = true,
	  MEMORY(143771, 616, 526), MEMORY_BUS(6144, MIB(60), 4800),
	  CLOCKS(1785, 3201, 1545), POWER(600, 200, 70), HOST_LINK(5, 55) },
	{ .key = "b200-180gb", .name = "NVIDIA B200",
	  .pci_device_id = PCI_ID(0x2901), .pci_subsystem_id = PCI_ID(0x1999),
	  BLACKWELL_10_0, .sm_count = 148, .mig_class = "g7", .ecc = true,
	  MEMORY(183359, 727, 620), MEMORY_BUS(8192, KIB(129536), 8000),
	  CLOCKS(1965, 3996, 1545), POWER(1000, 200, 140), HOST_LINK(5, 55) },
	{ .key = "gb200-186gb", .name = "NVIDIA GB200",
	  .pci_device_id = PCI_ID(0x2941), .pci_subsystem_id = PCI_ID(0x2046),
	  BLACKWELL_10_0, .sm_count = 152, .mig_class = "g7", .ecc = true,
	  MEMORY(189471, 727, 630), MEMORY_BUS(8192, KIB(129536), 8000),
	  CLOCKS(2062, 3996, 1545), POWER(1200, 200, 150), HOST_LINK(5, 400) },
	{ .key = "b300-269gb", .name = "NVIDIA B300 SXM6 AC",
	  .pci_device_id = PCI_ID(0x3182), .pci_subsystem_id = PCI_ID(0x20e6),
	  BLACKWELL_10_3, .sm_count = 148, .mig_class = "g7", .ecc = true,
	  MEMORY(275040, 810, 640), MEMORY_BUS(8192, KIB(129536), 8000),
	  CLOCKS(2032, 3996, 1545), POWER(1100, 200, 150), HOST_LINK(6, 55) },
	{ .key = "gb300-278gb", .name = "NVIDIA GB300",
	  .pci_device_id = PCI_ID(0x31c2), .pci_subsystem_id = PCI_ID(0x21f1),
	  BLACKWELL_10_3, .sm_count = 152, .mig_class = "g7", .ecc = true,
	  MEMORY(284208, 810, 650), MEMORY_BUS(8192, KIB(129536), 8000),
	  CLOCKS(2062, 3996, 1545), POWER(1400, 200, 160), HOST_LINK(6, 400) },
	{ .key = "rtx-pro-6000-96gb", .name = "NVIDIA RTX PRO 6000 Blackwell Server Edition",
	  .pci_device_id = PCI_ID(0x2bb5), .pci_subsystem_id = PCI_ID(0x204e),
	  BLACKWELL_12_0, .sm_count = 188, .mig_class = "rtx_pro_12", .ecc = true,
	  MEMORY(97887, 636, 480), MEMORY_BUS(512, MIB(128), 1597),
	  CLOCKS(2430, 12481, 2280), POWER(600, 300, 35), HOST_LINK(5, 55) },
	{ .key = "rtx-pro-5000-48gb", .name = "NVIDIA RTX PRO 5000 Blackwell",
	  .pci_device_id = PCI_ID(0x2bb3), .pci_subsystem_id = PCI_ID(0x204d),
	  BLACKWELL_12_0, .sm_count = 110, .mig_class = "rtx_pro_12", .ecc = true, .has_fan = true,
	  MEMORY(48935, 520, 440), MEMORY_BUS(384, MIB(96), 1344),
	  CLOCKS(2617, 14001, 2280), POWER(300, 150, 22), HOST_LINK(5, 55) },
	{ .key = "rtx-pro-4500-32gb", .name = "NVIDIA RTX PRO 4500 Blackwell",
	  .pci_device_id = PCI_ID(0x2c31), .pci_subsystem_id = PCI_ID(0x2051),
	  BLACKWELL_12_0, .sm_count = 82, .mig_class = "rtx_pro_12", .ecc = true, .has_fan = true,
	  MEMORY(32623, 480, 420), MEMORY_BUS(256, MIB(64), 896),
	  CLOCKS(2617, 14001, 2280), POWER(200, 100, 16), HOST_LINK(5, 55) },
	{ .key = "thor-128gb", .name = "NVIDIA Thor",
	  .pci_device_id = PCI_ID(0x2b00), .pci_subsystem_id = PCI_ID(0x0000),
	  BLACKWELL_11_0, .sm_count = 20, .mig_class = "thor",
	  MEMORY(125772, 0, 320), MEMORY_BUS(256, MIB(32), 273),
	  CLOCKS(1692, 4266, 1500), POWER(130, 40, 10), HOST_LINK(4, 26) },
	{ .key = "v100-32gb", .name = "Tesla V100-SXM2-32GB",
	  .pci_device_id = PCI_ID(0x1db5), .pci_subsystem_id = PCI_ID(0x1249),
	  VOLTA, .sm_count = 80, .ecc = true,
	  MEMORY(32768, 268, 304), MEMORY_BUS(4096, MIB(6), 900),
	  CLOCKS(1530, 877, 1372), POWER(300, 150, 42), HOST_LINK(3, 13) },
	{ .key = "t4-16gb", .alias = "t4", .name = "Tesla T4",
	  .pci_device_id = PCI_ID(0x1eb8), .pci_subsystem_id = PCI_ID(0x12a2),
	  TURING, .sm_count = 40, .ecc = true,
	  MEMORY(15360, 258, 104), MEMORY_BUS(256, MIB(4), 320),
	  CLOCKS(1590, 5001, 1470), POWER(70, 60, 9), HOST_LINK(3, 13) },
	{ .key = "rtx3090-24gb", .alias = "rtx-3090", .name = "NVIDIA GeForce RTX 3090",
	  .pci_device_id = PCI_ID(0x2204), .pci_subsystem_id = PCI_ID(0x1454),
	  AMPERE_8_6, .sm_count = 82, .has_fan = true,
	  MEMORY(24576, 325, 262), MEMORY_BUS(384, MIB(6), 936),
	  CLOCKS(2100, 9751, 1950), POWER(350, 100, 20), HOST_LINK(4, 26) },
	{ .key = "l4-24gb", .name = "NVIDIA L4",
	  .pci_device_id = PCI_ID(0x27b8), .pci_subsystem_id = PCI_ID(0x16ca),
	  ADA, .sm_count = 58, .ecc = true,
	  MEMORY(23034, 414, 224), MEMORY_BUS(192, MIB(48), 300),
	  CLOCKS(2040, 6251, 1770), POWER(72, 40, 12), HOST_LINK(4, 26) },
	{ .key = "l40s-48gb", .name = "NVIDIA L40S",
	  .pci_device_id = PCI_ID(0x26b9), .pci_subsystem_id = PCI_ID(0x1851),
	  ADA, .sm_count = 142, .ecc = true,
	  MEMORY(46068, 600, 388), MEMORY_BUS(384, MIB(96), 864),
	  CLOCKS(2520, 9001, 1965), POWER(350, 100, 32), HOST_LINK(4, 26) },
	{ .key = "rtx4090-24gb", .alias = "rtx-4090", .name = "NVIDIA GeForce RTX 4090",
	  .pci_device_id = PCI_ID(0x2684), .pci_subsystem_id = PCI_ID(0x16f3),
	  ADA, .sm_count = 128, .has_fan = true,
	  MEMORY(24564, 347, 378), MEMORY_BUS(384, MIB(72), 1008),
	  CLOCKS(3105, 10501, 2415), POWER(450, 150, 15), HOST_LINK(4, 26) },
};
/* clang-format on */

const struct sim_model *sim_models(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(models);
	return models;
}

const struct sim_model *sim_model_find(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
		const char *alias = models[i].alias;

		if (!strcmp(models[i].key, key) || (alias && !strcmp(alias, key)))
			return &models[i];
	}
	return NULL;
}
