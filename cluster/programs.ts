import { randomInt } from "node:crypto";
import { chownSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";

/** Where a program is, by its first name found: on the PATH, or as a pattern over versions. */
export function findProgram(names: string[], debianPackage: string): string {
  const path = `${process.env.PATH ?? ""}:/usr/sbin:/usr/local/sbin:/usr/bin`;
  for (const name of names) {
    if (name.startsWith("/")) {
      const found = [...new Bun.Glob(name.slice(1)).scanSync({ cwd: "/", absolute: true })].sort().at(-1);
      if (found !== undefined) return found;
    } else {
      const found = Bun.which(name, { PATH: path });
      if (found !== null) return found;
    }
  }
  throw new Error(`${names[0]} was not found. Install it: apt-get install ${debianPackage}`);
}

/** A program of PostgreSQL's server package: all stand beside initdb. */
export function findPostgresProgram(name: string, debianPackage = "postgresql"): string {
  const initdb = findProgram(["/usr/lib/postgresql/*/bin/initdb", "initdb"], debianPackage);
  return join(dirname(initdb), name);
}

export const findNatsServer = (): string => findProgram(["nats-server"], "nats-server");

/** PostgreSQL refuses to run as root. */
export function asServerUser(command: string[]): string[] {
  if (process.getuid?.() !== 0) return command;
  return [
    findProgram(["setpriv"], "util-linux"),
    "--reuid=postgres",
    "--regid=postgres",
    "--init-groups",
    ...command,
  ];
}

export function giveToServerUser(path: string, debianPackage = "postgresql"): void {
  if (process.getuid?.() !== 0) return;
  const account = readFileSync("/etc/passwd", "utf8").match(/^postgres:[^:]*:(\d+):(\d+):/m);
  if (!account) throw new Error(`There is no user postgres. Install it: apt-get install ${debianPackage}`);
  chownSync(path, Number(account[1]), Number(account[2]));
}

/** Ports from here up belong to connections and to whoever asks for any port. */
function portsGivenOutFrom(): number {
  try {
    return Number(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").split(/\s+/)[0]);
  } catch {
    return 32_768;
  }
}

const portsTaken = new Set<number>();

/**
 * A port of the loopback address that was free a moment ago. It is none that the system gives to connections, which could
 * take it before it is listened on, or while its server is being started again.
 */
export async function freePort(): Promise<number> {
  const lowest = 10_000;
  const end = Math.max(portsGivenOutFrom(), lowest + 1_000);
  for (let tries = 0; tries < 1_000; tries++) {
    const port = randomInt(lowest, end);
    if (portsTaken.has(port) || !(await isFree(port))) continue;
    portsTaken.add(port);
    return port;
  }
  throw new Error(`no free port from ${lowest} to ${end - 1}`);
}

export function isFree(port: number): Promise<boolean> {
  return new Promise((done) => {
    const probe = createServer();
    probe.once("error", () => done(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => done(true)));
  });
}

/** Runs a program to its end; throws with its output when it fails. */
export async function run(command: string[]): Promise<string> {
  const child = Bun.spawn(command, { cwd: "/", stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0) throw new Error(`${command.join(" ")} failed:\n${out}${err}`);
  return out;
}
