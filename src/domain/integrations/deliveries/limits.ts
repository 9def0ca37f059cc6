/** Endpoints of an environment, and what one may hold. */
export const endpointsMax = 100;
export const endpointNameCharsMax = 200;
export const endpointUrlBytesMax = 2_048;
export const endpointSecretBytes = 32;
export const endpointGraceSecondsMax = 604_800;
/** Endpoints that a node sends to at once: in all, and of one environment. */
export const sendersMax = 64;
export const sendersOfEnvironmentMax = 8;
/** A sender holds an endpoint for one call and this long, anew with each save. */
export const senderLeaseBesideMs = 3_000;
/** After this long a sender lets another endpoint have its turn. */
export const senderTurnMs = 5_000;
/** Positions are saved after so many deliveries, or after so long. */
export const savedEveryDeliveries = 20;
export const savedEveryMs = 1_000;
/** Names of events that are looked at in one read, and events that are read at once. */
export const namesReadMax = 500;
export const eventsReadMax = 8;
/** The longest pause between two tries, also one that the receiver asks for. */
export const retryPauseMsMax = 60 * 60 * 1000;
/** An endpoint without one delivery in this long is disabled. */
export const disabledAfterMs = 5 * 24 * 60 * 60 * 1000;
/** An endpoint that stopped does not keep events from expiring for longer. */
export const stoppedKeepsMs = 7 * 24 * 60 * 60 * 1000;
export const deadLetterKeptMs = 30 * 24 * 60 * 60 * 1000;
export const endpointErrorCharsMax = 500;
