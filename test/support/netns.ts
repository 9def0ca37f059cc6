import { findProgram, run } from "./process.ts";

/** A host of its own on this machine: a network namespace, and a wire to here. */
export interface OtherHost {
  /** Addresses at the two ends of the wire. */
  here: string;
  there: string;
  /** In front of a command that shall run there. */
  command: readonly string[];
  /** Packets of one direction get lost while the other goes on: `out` is what the other host sends. */
  lose(direction: "in" | "out"): Promise<void>;
  heal(): Promise<void>;
  remove(): Promise<void>;
}

const ip = () => findProgram(["ip", "/usr/sbin/ip"], "iproute2");

/** `number`, from 0 to 62, tells hosts of this machine apart. */
export async function makeHost(number: number): Promise<OtherHost> {
  const name = `svc-${process.pid}-${number}`;
  const wire = `svc${(process.pid % 10_000).toString()}${number}`;
  const here = `10.213.${number}.1`;
  const there = `10.213.${number}.2`;
  const inside = [ip(), "netns", "exec", name];
  await run([ip(), "netns", "add", name]);
  await run([ip(), "link", "add", wire, "type", "veth", "peer", "name", "wire", "netns", name]);
  await run([ip(), "address", "add", `${here}/30`, "dev", wire]);
  await run([ip(), "link", "set", wire, "up"]);
  await run([...inside, ip(), "address", "add", `${there}/30`, "dev", "wire"]);
  await run([...inside, ip(), "link", "set", "wire", "up"]);
  await run([...inside, ip(), "link", "set", "lo", "up"]);
  let healing: string[][] = [];
  const host: OtherHost = {
    here,
    there,
    command: inside,
    async lose(direction) {
      const before = direction === "in" ? [ip()] : [...inside, ip()];
      const target = `${direction === "in" ? there : here}/32`;
      await run([...before, "route", "add", "blackhole", target]);
      healing.push([...before, "route", "del", "blackhole", target]);
    },
    async heal() {
      for (const command of healing.splice(0)) await run(command);
    },
    async remove() {
      await host.heal();
      healing = [];
      await run([ip(), "netns", "del", name]);
    },
  };
  return host;
}

/** Whether this user may make one, which takes root and a machine that lets root. */
export const mayMakeHosts: boolean = await makeHost(62).then(
  async (host) => {
    await host.remove();
    return true;
  },
  () => false,
);
