/** How far ahead an event may be emitted. */
export const delayMsMax = 366 * 24 * 60 * 60 * 1000;
/** Events of one environment that wait for their time. */
export const delayedEventsMax = 100_000;
/** A node counts an environment's at most this often: calls at once may pass the limit by what they add. */
export const delayedCountKeptMs = 2_000;
export const delayedSliceMax = 100;
/** An event whose emit was neither stored nor refused is tried again after this. */
export const delayedAgainMs = 15_000;
