/** Rows of one page, and bytes of its large columns after which it ends: a page is how long others wait. */
export const exportPageRowsMax = 60;
export const exportPageBytesMax = 256 * 1024;
/** Runs whose steps are read together. */
export const exportRunsAtOnce = 200;
/** An export whose client takes nothing for so long gives way to another one. */
export const exportLeaseMs = 60_000;
/** Letters a second that a client must take, over all of an older export: a slower one gives way too. */
export const exportPaceMin = 16 * 1024;
/** Orgs that one node exports at a time, one export each. */
export const exportsAtOnceMax = 4;
export const exportRenewMs = 10_000;
export const exportRetryAfterSeconds = 30;
/** Pages after which garbage is collected, and for how long: at an export's rate the heap would double. */
export const exportCollectPages = 25;
export const exportCollectMs = 10;
/** A node that grew by more than this during an export gives memory back; it looks behind so many pages. */
export const exportGrowthBytes = 24 * 1024 * 1024;
export const exportLookPages = 400;
