export const patternBytesMax = 1_024;
/** Subscriptions of one connection, and past events that one of them may ask for. */
export const subscriptionsMax = 100;
export const replayMax = 1_000;
/** Newest events that are looked through for those a replay with wildcards or a filter asks for. */
export const replayScanMax = 10_000;
/** Events, and their characters, that wait for the reader of one stream before it is ended. */
export const deliveriesWaitingMax = 10_000;
export const deliveriesCharsMax = 16 * 1024 * 1024;

/** Larger system frames stay on their own node: the bus does not carry them. */
export const frameBytesMax = 512 * 1024;
/** A node that says it has readers of run frames is believed for this long. */
export const frameInterestMs = 5_000;
export const frameListenMsMax = 1_000;
/** A longer environment id does not fit into a bus subject, so the environment has no frames. */
export const frameEnvironmentBytesMax = 110;
/** Environments named in one word about interest, and runs looked up at once for their frames. */
export const frameSliceMax = 500;
/** How often the rows of frames are looked up while less than a slice of them waits. */
export const lookEveryMs = 10;
/** Of a run that is over within this time no frame says that it was running. */
export const quickRunMs = 50;
/** Ended runs waiting to be looked up for their frames; frames of more are dropped. */
export const endsWaitingMax = 20_000;
/** Frames of a group or a webhook that moves all the time leave a node at most this often. */
export const movedFrameMs = 200;
/** Groups or webhooks that a node tells of at once; frames of more are dropped. */
export const movedThingsMax = 1_000;
/** Deliveries of a group that one socket subscription may settle by frames: as many as a group holds. */
export const unsettledMax = 1_000;
