import { resolve } from "node:path";
import { engineVariable } from "./engines.ts";
import { changedSince } from "./since.ts";

// Two loops for people. `bun run test:house`: what names a forgotten place. `bun run test:quick`: that, the unit tests, and the
// operations of the capabilities that the working tree changed since HEAD, on libSQL.

const root = resolve(import.meta.dir, "../..");
const house = [
  "tidy",
  ...["surface", "policy-doors", "changed-lists", "reference", "auth-matrix"].map(
    (name) => `contract/${name}`,
  ),
  ...["gen", "lanes"].map((name) => `unit/${name}`),
].map((name) => `test/${name}.test.ts`);
/** They build packages, or start programs: longer than a person waits. */
const slowUnits = new Set(
  ["helm", "sdk-node", "servers", "observability", "cluster-files"].map(
    (name) => `test/unit/${name}.test.ts`,
  ),
);

const filesIn = (folder: string) =>
  [...new Bun.Glob(`test/${folder}/*.test.ts`).scanSync({ cwd: root })].sort();

/** Capabilities that callers know by another word. */
const words: Record<string, string> = { emit: "events" };

/** Tests of operations that are called as a changed capability is, and those that were changed themselves. */
function operationsChanged(): string[] {
  const changed = changedSince(root, "HEAD");
  const capabilities = new Set(
    changed.flatMap((path) => {
      const [, wing, folder] = /^src\/domain\/([\w-]+)\/([\w-]+)\//.exec(path) ?? [];
      const [, room] = /^src\/(sdk|cli)\//.exec(path) ?? [];
      return [wing && folder, folder && words[folder], room].filter((one) => one !== undefined);
    }),
  );
  return filesIn("operations").filter((path) => {
    const [name] = path.slice("test/operations/".length).split(".");
    return (
      changed.includes(path) || [...capabilities].some((one) => name === one || name!.startsWith(`${one}-`))
    );
  });
}

/** Two processes, and who waits in one leaves its core to the other. */
async function run(files: readonly string[]): Promise<boolean> {
  const halves = [files.filter((_, at) => at % 2 === 0), files.filter((_, at) => at % 2 === 1)];
  const exits = halves
    .filter((half) => half.length > 0)
    .map((half) =>
      Bun.spawn([process.execPath, "test", "--timeout=60000", "--dots", ...half.map((path) => `./${path}`)], {
        cwd: root,
        env: { [engineVariable]: "libsql", ...process.env },
        stdio: ["ignore", "inherit", "inherit"],
      }),
    )
    .map((child) => child.exited);
  return (await Promise.all(exits)).every((exit) => exit === 0);
}

const units = filesIn("unit").filter((path) => !slowUnits.has(path));
const files =
  process.argv[2] === "quick" ? [...new Set([...house, ...units, ...operationsChanged()])] : house;
process.exitCode = (await run(files)) ? 0 : 1;
