export const workerFunctionsMax = 1_000;
export const workerJobsMax = 1_000;
export const workerLabelsMax = 50;
export const exchangeReportsMax = 200;
export const progressStepsMax = 500;
/** How often a step may be tried by itself. */
export const stepTriesMax = 100;

export const waitMsDefault = 7 * 24 * 60 * 60 * 1000;
export const waitMsMax = 366 * 24 * 60 * 60 * 1000;
export const invokeMsDefault = 30_000;
export const invokeMsMax = 366 * 24 * 60 * 60 * 1000;
/** A worker's clock may differ from the server's by this much, the way of the message included. */
export const clockOffMsMax = 1_000;
/** Conditions that one step waits for. */
export const waitConditionsMax = 20;
/** Of the value that a key shall equal. */
export const waitValueBytesMax = 1_024;

export const definitionHashCharsMax = 64;

/** Stored steps that one report says its handler did not come to as before. */
export const deviationsMax = 20;
/** Versions of functions that a node remembers to have logged them of. */
export const deviationsToldMax = 10_000;
