/**
 * Limits that several capabilities share, or that callers are told for the whole product. Every other limit
 * stands beside the code that obeys it: at the head of its file, or in the `limits.ts` of its capability.
 * Those a company may want to move are settings.
 */

/** With the `events:` prefix that the server adds, a name stays under 255 bytes. */
export const eventNameBytesMax = 248;
export const requestBodyBytesMax = 4 * 1024 * 1024;
export const stepOutputBytesMax = 4 * 1024 * 1024;
/**
 * A report with one such output, and a message of a stream that has the report as a text: there each quote
 * and backslash takes two bytes.
 */
export const reportBytesMax = 2 * stepOutputBytesMax + 1024 * 1024 + 64 * 1024;
export const idempotencyKeyBytesMax = 255;
export const idempotencyKeptMs = 24 * 60 * 60 * 1000;
/** The same of ids by which providers name their webhooks: they repeat them for up to three days. */
export const webhookKeyKeptMs = 72 * 60 * 60 * 1000;

export const listLimitDefault = 20;
export const listLimitMax = 200;
/**
 * Gauges counted in the store: the largest count, how long an answer is cached, how long a reader waits for
 * one.
 */
export const gaugeCountMax = 100_000;
export const gaugeKeptMs = 5_000;
export const gaugeWaitMsMax = 500;
export const countCap = 10_000;
export const searchBytesMax = 256;

export const functionIdBytesMax = 200;
export const functionDefinitionBytesMax = 256 * 1024;
export const expressionBytesMax = 4 * 1024;

/** A worker that was not heard of for this long is gone: three heartbeats of our SDK. */
export const workerSilenceMsMax = 90_000;
/** Jobs handed out in one poll answer, however many slots a worker says are free. */
export const pollJobsMax = 200;
export const sleepMsMax = 366 * 24 * 60 * 60 * 1000;

/** A read with `X-Svc-Min-Sequence` waits this long at most, and less when its own deadline comes earlier. */
export const sequenceWaitMsMax = 10_000;

/**
 * An authenticated key or session is cached this long: a deleted key stops working at most this much later.
 */
export const keyLeaseMs = 500;
/**
 * A node that falls silent loses the names it holds on the bus, and its leases on duties in the store, after
 * this.
 */
export const nameKeptMs = 3_000;
/** How long a rotation waits for the nodes' confirmations; a node that missed it follows by itself. */
export const confirmMs = 2_000;
/** Rows deleted in one transaction by retention. */
export const purgeSliceMax = 1_000;
/** Lanes of one function that are looked at in one go; the next look goes on behind them. */
export const laneLookMax = 1_000;

/** A wake that is not handled for this long is overdue. */
export const overdueMs = 15_000;
/** Rows that one check of the integrity report reads, and environments whose findings a node keeps. */
export const integrityRowsMax = 10_000;
export const integrityEnvironmentsMax = 1_000;
/** Rows that a round of retention deletes in one transaction, and slices in one round. */
export const expireSliceMax = 200;
export const expireSlicesMax = 500;

/** Of the URL by which an issuer is known, and of what it names: people, its sessions, values of claims. */
export const issuerUrlBytesMax = 500;
export const providerTextBytesMax = 255;

/** `functions.paced` of those that pin their runs. A node that knows no pins reads any number as 1. */
export const pacedOfPin = 2;
/** How long a pinned run waits for its deployment once the last worker of it is gone. */
export const pinGraceMsDefault = 10 * 60 * 1000;
