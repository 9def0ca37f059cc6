export const functionNameBytesMax = 256;
export const functionTriggersMax = 50;
export const runAttemptsMax = 100;
export const retryDelayMsMax = 7 * 24 * 60 * 60 * 1000;
export const runTimeoutMsMax = 366 * 24 * 60 * 60 * 1000;
/** Environments whose functions a node keeps in memory, and pinned definitions of earlier versions. */
export const definitionsKeptMax = 5_000;
