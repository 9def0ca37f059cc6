/** Projections of an environment, event names and patterns of one, and the path that partitions it. */
export const projectionsMax = 1_000;
/** Changes of a projection that its history keeps. */
export const changesMax = 1_000;
export const projectionNameBytesMax = 128;
export const projectionEventsMax = 100;
export const partitionPathBytesMax = 256;
export const partitionKeyBytesMax = 512;
export const projectionStateBytesMax = 4 * 1024 * 1024;
/** Partitions saved in one transaction. */
export const projectionSavesMax = 1_000;
/** Events in one answer or slice of a runner, and about how many characters of payloads. */
export const projectionBatchDefault = 100;
export const projectionBatchMax = 1_000;
export const projectionBatchCharsMax = 4 * 1024 * 1024;
/** Positions that one read looks through for events of a projection. */
export const projectionScanMax = 5_000;
/** Positions that one statement looks through: SQLite blocks the node meanwhile. */
export const projectionStepMax = 1_000;
/** Slices of the log that one look for events of one partition goes through. */
export const projectionPartSlicesMax = 20;
/** Polls of one projection that a node holds; what comes then is answered at once. */
export const projectionHeldPollsMax = 100;
/** Delivered events that one stream leaves unsaved before it waits. */
export const projectionWindowMax = 2_000;
/** A runner keeps a projection for this long after it last asked; longer while it has events to save. */
export const projectionLeaseMs = 20_000;
export const projectionWorkMs = 60_000;
/**
 * A generation built beside rests this many times as long as a slice took, so that live traffic keeps its
 * share whether or not the log grows. Half of it where the end comes no nearer in this time.
 */
export const buildRestBusy = 24;
export const buildRestIdle = 0.5;
export const buildRestMsMax = 2_000;
export const buildNearerMs = 30_000;
export const projectionHeartbeatMs = 15_000;
/** A stream whose events stay unsaved for this long is ended, so that another runner may try. */
export const projectionStuckMs = 5 * 60 * 1000;
/** How long a stream that ends waits for the saves of what it delivered. */
export const projectionDrainMs = 500;
export const projectionStreamsMax = 2_000;
export const runnerIdBytesMax = 128;
/** A projection that no runner asked for in this long does not keep events from expiring. */
export const projectionLiveMs = 7 * 24 * 60 * 60 * 1000;
export const projectionErrorCharsMax = 2_000;
/** The lag is counted event by event up to this many positions; beyond it is their difference. */
export const lagCountMax = 10_000;
/** Events of a rebuild are counted up to this many positions; beyond it they are estimated. */
export const rebuildCountMax = 100_000;
/** A SQL projection's name, its handlers, and rows of a page of its table. */
export const foldTableNameMax = 45;
export const handlersMax = 100;
export const foldRowsDefault = 100;
export const descriptionBytesMax = 4 * 1024;
/** SQL projections that one tick looks at, and those that a node folds at a time. */
export const foldsMax = 200;
export const foldsAtOnceMax = 4;
/** Events of one slice of a fold, and how long one projection is folded before the next one's turn. */
export const foldEventsMax = 1_000;
export const foldTurnMs = 250;
/** A node that folds a projection keeps it for this long; the cursor of the table is what fences it. */
export const foldLeaseMs = 5_000;
/** A cursor passes over events of others this often. */
export const foldStrideMs = 2_000;
export const partitionsDefault = 100;
export const partitionsMax = 1_000;
/** Callers of a node that wait for projections; how long they may; items of one batch. */
export const projectionWaitsMax = 10_000;
export const projectionWaitMsDefault = 30_000;
export const projectionWaitMsMax = 60_000;
export const projectionWaitStreamMsMax = 300_000;
export const projectionWaitItemsMax = 16;
/** Projections looked up in one query for those who wait, and logs that one look passes over for them. */
export const projectionLookMax = 500;
export const projectionPassMax = 100;
/** Waits whose missing events are counted at once. */
export const projectionCountersMax = 4;
/** Health frames of one projection leave a node at most this often. */
export const projectionFrameMs = 250;

/** How long recording projections keep their states as they were. */
export const historyMs = 30 * 86_400_000;
