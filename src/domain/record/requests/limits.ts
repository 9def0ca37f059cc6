/** Captured requests of an org that a node keeps, and that an answer has. */
export const capturedMax = 100;
/** Requests are captured for so long after somebody asked for them. */
export const captureMs = 10 * 60_000;
/** Orgs whose requests a node captures at once. */
export const capturedOrgsMax = 100;
/** Of one request. */
export const capturedBodyBytesMax = 2_048;
export const capturedHeadersMax = 32;
export const capturedTextCharsMax = 256;
/** A larger body is not looked at. */
export const inspectedBodyBytesMax = 64 * 1024;
/** What a node answers to the others: a bus takes no more than a megabyte. */
export const capturedReplyBytesMax = 640 * 1024;
