import { expect, test } from "bun:test";
import { keepingMemory, type Program } from "../../src/cli/kept-memory.ts";

const fromSources: Program = {
  execPath: "/usr/bin/bun",
  execArgv: ["--preload=/a.ts"],
  argv: ["/usr/bin/bun", "/svc/src/main.ts", "serve", "--port", "1"],
  env: { PATH: "/bin" },
  isExecutable: false,
};
const kept = {
  PATH: "/bin",
  MIMALLOC_PURGE_DELAY: "60000",
  MIMALLOC_PURGE_HOLES: "0",
  BUN_CONFIG_MAX_HTTP_REQUESTS: "400",
};

test("a server is started anew with its flags, those of Bun, and its variables", () => {
  expect(keepingMemory(fromSources)).toEqual({
    args: ["/usr/bin/bun", "--preload=/a.ts", "/svc/src/main.ts", "serve", "--port", "1"],
    env: kept,
  });
});

test("more calls outward than the runtime makes by itself, unless somebody says how many", () => {
  const env = { BUN_CONFIG_MAX_HTTP_REQUESTS: "1000" };
  expect(keepingMemory({ ...fromSources, env })?.env).toMatchObject(env);
});

test("an executable is its own Bun and its own file", () => {
  const executable: Program = {
    ...{ execPath: "/usr/local/bin/svc", execArgv: [], env: { PATH: "/bin" }, isExecutable: true },
    argv: ["bun", "/$bunfs/root/svc", "serve"],
  };
  expect(keepingMemory(executable)).toEqual({ args: ["/usr/local/bin/svc", "serve"], env: kept });
});

test.each(["MIMALLOC_PURGE_DELAY", "MIMALLOC_PURGE_HOLES"])(
  "somebody who has set %s is left alone, and so is what was started anew",
  (name) => {
    expect(keepingMemory({ ...fromSources, env: { [name]: "" } })).toBeUndefined();
    expect(keepingMemory({ ...fromSources, env: kept })).toBeUndefined();
  },
);
