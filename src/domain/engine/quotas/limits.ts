/** The highest limits that a quota may have. Unfinished runs are counted one by one if they seem too many. */
export const quotaRunsPerMinuteMax = 10_000_000;
export const quotaConcurrentRunsMax = 100_000;
export const quotaStoredBytesMax = 2 ** 50;
/** A refusal for runs that are not over, or for bytes, asks to come again after so many seconds. */
export const quotaAgainSeconds = 1;
/** A start that no caller waits for is tried again after this, where nothing says when there is room. */
export const quotaAgainMs = 1_000;
/** A node rereads a ledger after this time. Until then messages, keys and delayed events may pass quotas. */
export const ledgerKeptMs = 1_000;
export const ledgersKeptMax = 1_000;
