/**
 * What this SDK tells the server of itself. From 0.40 on a server sends failed rows (a failed child, a wait that was over)
 * with `completed_steps`; older SDKs would take them for results, so it keeps them from those.
 */
export const sdkVersion = "0.40.0";
