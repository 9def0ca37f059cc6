import { expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dir, "../..");

// Without the patch a backend that dies inside a transaction makes a timer write to a null socket, which ends the process.
test.each(["src", "cjs/src"])("the %s build of postgres drops a write to a closed socket", async (build) => {
  const source = await readFile(join(root, "node_modules/postgres", build, "connection.js"), "utf8");
  const body = source.slice(source.indexOf("function nextWrite("));
  const guard = body.indexOf("if (socket === null) {");
  expect(guard).toBeGreaterThan(0);
  expect(guard).toBeLessThan(body.indexOf("socket.write("));
});

test("the pinned version is the one the patch was made for", async () => {
  const { version } = await Bun.file(join(root, "node_modules/postgres/package.json")).json();
  const manifest = await Bun.file(join(root, "package.json")).json();
  expect(manifest.dependencies.postgres).toBe(version);
  expect(Object.keys(manifest.patchedDependencies)).toEqual([`postgres@${version}`]);
});
