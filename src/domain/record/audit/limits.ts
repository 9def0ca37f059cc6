/** Audit rows that wait in memory; what comes beyond stays in the spool file alone, up to its size. */
export const auditWaitingMax = 20_000;
export const auditSpoolBytesMax = 256 * 1024 * 1024;
/** Rows of one file of the spool, and of one flush. */
export const auditFlushRowsMax = 1_000;
/** Rows are gathered this long before they are written. */
export const auditGatherMs = 250;
export const auditPayloadBytesMax = 8 * 1024;
export const auditTextCharsMax = 512;

/**
 * Denials of one caller at one operation that are written in a minute; the others are counted in the next
 * row.
 */
export const auditDenialsMax = 60;
export const auditCallersKeptMax = 10_000;
/** Rows whose hashes one verification checks. */
export const auditVerifyRowsMax = 200_000;
