import { chownSync, readFileSync } from "node:fs";
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
