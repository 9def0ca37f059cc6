/**
 * The version that workers register: the package's, as a test checks. To 0.40 and newer the server sends
 * failed rows (a failed child, an ended wait) in `completed_steps`; older SDKs would take them for results.
 */
export const sdkVersion = "0.41.0";

export function runtimeName(): string {
  const versions: Record<string, string | undefined> = globalThis.process?.versions ?? {};
  return versions.bun ? `bun-v${versions.bun}` : `node-v${versions.node ?? "unknown"}`;
}

/** Whether a server of this version is a release behind; not where it sends no version. */
export function isOlderServer(version: string): boolean {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(version) ?? [];
  if (major === undefined) return false;
  const [ownMajor = 0, ownMinor = 0] = sdkVersion.split(".").map(Number);
  return Number(major) < ownMajor || (Number(major) === ownMajor && Number(minor) < ownMinor);
}
