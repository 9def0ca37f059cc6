import { readFileSync } from "node:fs";
import { createServer } from "node:net";

/** Ports that the kernel gives to whoever asks for any, and to outgoing connections. */
function givenByKernel(): { from: number; to: number } {
  try {
    const [from, to] = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").trim().split(/\s+/);
    return { from: Number(from), to: Number(to) };
  } catch {
    return { from: 32_768, to: 60_999 };
  }
}

const lowest = 12_000;
const highest = 65_000;
const kernel = givenByKernel();
/** Those below the kernel's, or above where too few are below. */
const [first, count] =
  kernel.from - lowest > 1_000
    ? [lowest, Math.min(kernel.from, highest) - lowest]
    : [kernel.to + 1, highest - kernel.to];

const given = new Set<number>();

export const isFree = (port: number, host?: string): Promise<boolean> =>
  new Promise((done) => {
    const probe = createServer();
    probe.once("error", () => done(false));
    probe.listen(port, host, () => probe.close(() => done(true)));
  });

/**
 * A port that nobody listens at and nobody else will get before it is used, also while its server is away: the kernel gives
 * it to nobody, and this process never twice.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 1_000; tries++) {
    const port = first + Math.floor(Math.random() * count);
    if (given.has(port)) continue;
    given.add(port);
    if (await isFree(port)) return port;
  }
  throw new Error(`no port is free from ${first} to ${first + count - 1}`);
}
