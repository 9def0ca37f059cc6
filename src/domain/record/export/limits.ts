/** Rows of one page, and bytes of its large columns after which it ends: a page is how long others wait. */
export const exportPageRowsMax = 200;
export const exportPageBytesMax = 256 * 1024;
/** Runs whose steps are read together. */
export const exportRunsAtOnce = 200;
/** An export whose client takes nothing for so long gives way to another one. */
export const exportLeaseMs = 60_000;
export const exportRenewMs = 10_000;
export const exportRetryAfterSeconds = 30;
