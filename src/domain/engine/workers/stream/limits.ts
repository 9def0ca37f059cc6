/** A stream must begin with `register` within this time. */
export const streamRegisterMs = 10_000;
export const streamHeartbeatMs = 30_000;
/** A stream without a heartbeat for this long is closed: workers send three in that time. */
export const streamSilenceMsMax = 90_000;
/** Jobs listed in one heartbeat. */
export const heartbeatJobsMax = 1_000;
/** Messages waiting to be written to one worker's stream; a worker that stops reading is disconnected. */
export const streamOutboxMax = 256;
/** Reports and steps of one stream that wait to be stored, before no more is read from it. */
export const streamWaitingMax = 1_000;
/** A job that is not acked within this goes to another worker. */
export const streamAckMs = 5_000;
/** A worker that does not ack gets no further job for this long; one that says it is full, for the second. */
export const streamDistrustMs = 10_000;
export const streamFullMs = 1_000;
/** Finished steps that come within this over a stream are stored together. */
export const stepGatherMs = 10;
