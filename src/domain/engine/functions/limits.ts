export const functionNameBytesMax = 256;
export const functionTriggersMax = 50;
export const runAttemptsMax = 100;
export const retryDelayMsMax = 7 * 24 * 60 * 60 * 1000;
export const runTimeoutMsMax = 366 * 24 * 60 * 60 * 1000;
/** Environments whose functions a node keeps in memory, and pinned definitions of earlier versions. */
export const definitionsKeptMax = 5_000;
/** Runs at a time of one lane; also the limit of lanes that only order or pace their runs. */
export const concurrencyMax = 1_000_000;
/** Seconds by which a run may go ahead of others, or behind them. */
export const priorityMax = 600;
/** Starts of a period, and the period, that flow control counts. */
export const flowStartsMax = 1_000_000;
export const flowPeriodMsMin = 1_000;
export const flowPeriodMsMax = 7 * 24 * 60 * 60 * 1000;
export const idempotencyMsDefault = 24 * 60 * 60 * 1000;
/** A singleton without a run is remembered this long. */
export const singletonKeptMs = 60 * 60 * 1000;
/** What the expression of an option may look at: it is evaluated while a flush is prepared. */
export const flowItemsMax = 1_000;
export const pinGraceMsMax = 7 * 24 * 60 * 60 * 1000;
/** Events of one batch. */
export const batchSizeMax = 1_000;
/** A path into the data of an event, where registrations are checked. */
export const pathBytesMax = 512;
