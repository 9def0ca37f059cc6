import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import packageFile from "../../package.json" with { type: "json" };

const root = resolve(import.meta.dir, "../..");

/** By the reference of Dockerfile. */
const instructions =
  /^(FROM|RUN|CMD|LABEL|EXPOSE|ENV|ADD|COPY|ENTRYPOINT|VOLUME|USER|WORKDIR|ARG|STOPSIGNAL|HEALTHCHECK|SHELL) \S/;

test("the container file has known instructions, and leaves out nothing that its build reads", () => {
  const lines = readFileSync(join(root, "cluster/Containerfile"), "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  expect(lines.filter((line) => !instructions.test(line))).toEqual([]);
  expect(lines[0]).toBe(`FROM oven/bun:${packageFile.packageManager.replace("bun@", "")} AS build`);
  const scripts = lines
    .join("\n")
    .match(/bun run [\w:]+/g)!
    .map((text) => text.slice("bun run ".length));
  expect(Object.keys(packageFile.scripts)).toEqual(expect.arrayContaining(scripts));
  const ignored = readFileSync(join(root, ".dockerignore"), "utf8").trim().split("\n");
  const needed = [
    "package.json",
    "bun.lock",
    "bunfig.toml",
    ...Object.values(packageFile.patchedDependencies),
    "src",
    "proto",
  ];
  expect(
    needed.filter((path) => ignored.includes(path.split("/")[0]!) || !existsSync(join(root, path))),
  ).toEqual([]);
});
