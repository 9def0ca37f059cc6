export const workerFunctionsMax = 1_000;
export const workerJobsMax = 1_000;
export const workerLabelsMax = 50;
/** The shortest lease that a worker may ask for. */
export const workerLeaseMsMin = 1_000;
/** A worker still holds jobs whose last reports are not answered. */
export const heldJobsMax = 2 * workerJobsMax;
/** Jobs that go back at once when a process does not hold them; others go back when their lease ends. */
export const lostJobsMax = 1_000;
/**
 * A job may wait for its worker's next poll, at this node or another one, and its claim takes time: what was
 * leased less long ago does not count as lost.
 */
export const onTheWayMs = 1_000;
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

/** Things that a handler may wait for at a time. */
export const openWaitsMax = 1_000;
