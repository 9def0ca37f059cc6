const minute = 60_000;
const hour = 60 * minute;

/** How often a node writes what it counted; what it has not written is lost when it is killed. */
export const flowWriteMs = 2_000;
/** Different edges of one kind in one environment and hour. Those beyond are counted as one number. */
export const flowEdgesMax = 1_000;
/** Runs and topics of one environment whose publishes a node remembers between two writes. */
export const publishesMax = 10_000;
/** Hours of edges that one map reads, newest first. It begins later where they hold more. */
export const flowReadMax = 5_000;
/** Edges of one answer, those that most happened along. */
export const flowShownMax = 1_000;
export const flowHoursDefault = 24;
export const flowHoursMax = 7 * 24;
export const edgesKeptMs = flowHoursMax * hour;
/** An hour longer than the longest window that is shown. */
export const minutesKeptMs = 25 * hour;
/** Rows of one statement. */
export const flowRowsMax = 1_000;
/** Minutes of one answer: an hour when left out, a day at most. */
export const rateMinutesDefault = 60;
export const rateMinutesMax = 24 * 60;
