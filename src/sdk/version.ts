/**
 * The version with which workers register: that of the package, which a test compares. To 0.40 and newer the server sends failed
 * rows (a failed child, a wait that was over) with `completed_steps`; older SDKs would take such rows for results.
 */
export const sdkVersion = "0.40.0";
