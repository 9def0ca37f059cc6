/** Runs that one repair selects, and events that one replay starts runs of. */
export const repairItemsMax = 1_000_000;
/** Up to this many runs are counted in a preview. */
export const previewCountMax = 100_000;
export const previewSamplesMax = 10;
/** Repairs of an environment that are not over. */
export const repairsOpenMax = 10;
export const repairReasonCharsMax = 1_024;
export const repairErrorCharsMax = 500;
/** A repair and what became of its runs is kept this long after its end. */
export const repairKeptMs = 30 * 24 * 60 * 60 * 1000;

/** Runs that are selected, or undone by a stop, in one transaction. */
export const selectSliceMax = 1_000;
/** Runs that are looked up at once. */
export const repairSliceMax = 20;
/**
 * An environment's repair does no more than this, one run after another, and rests after each as long as it
 * took: live traffic comes first, and what is done in bursts is seen in its slowest hundredth.
 */
export const repairItemsPerSecond = 200;
/** A repair adds no runs to a function that has so many queued. */
export const repairQueuedMax = 200;
/** How long a repair waits for room in a queue, or for the store. */
export const repairWaitMs = 1_000;
/** Defects that one run may meet before it counts as failed. */
export const repairTriesMax = 3;

/** Repairs that one node works on at once, each for one turn, of different environments. */
export const repairTurnsMax = 4;
export const repairTurnMs = 2_000;
/** A node that falls silent loses its repair after this. */
export const repairLeaseMs = 5_000;

/** Events that a preview of a replay looks at, and for how long. */
export const replayPreviewEventsMax = 100_000;
export const replayPreviewMs = 2_000;
/** Positions of the log, and events of the wanted names, that one slice of a replay looks at. */
export const replaySlicePositionsMax = 5_000;
export const replaySliceEventsMax = 500;
/** A slice whose filter takes longer stores what it has. */
export const replaySliceMs = 1_000;
/** Payloads that are in memory at once: as many as fit, and at least a few. */
export const replayPieceCharsMax = 4 * 1024 * 1024;
export const replayPieceMin = 4;
export const replayPieceMax = 100;
/** A replay adds no runs to a function that has so many queued: its live runs wait behind them. */
export const replayQueuedMax = 100;
/** How long a replay waits for a worker to take some of the queued runs. */
export const replayRoomWaitMs = 100;
/** How long retention keeps the events that an open replay has not read yet. */
export const replayHoldsMs = 7 * 24 * 60 * 60 * 1000;
/** What the filter of a replay may look at in one event, in items. */
export const replayItemsMax = 100_000;
