/* Spares the way from an exported entry to the driver its jump through memory. */
#pragma once

/* Once all slots are filled: replaces the pages that the entries are in, at once and as a whole, by
 * a copy. In the copy `jmp *slot` and `call *slot` are a jump and a call of where the slot leads.
 * Memory that can be written can never be executed. A function that is too far away, and where the
 * process may not have such pages (no memory, a policy, PR_SET_MDWE), everything goes through the
 * slots as before. Only the first call does anything; any thread, while others run through the
 * entries. */
void direct_bind(void);
