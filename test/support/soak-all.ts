import { resolve } from "node:path";
import { soakVariable } from "./soak.ts";

// bun run test:soak: what is tried at random, for as long as it takes, by another seed each time (SVC_TEST_SEED has it again).
const files = ["simulate/simulate", "fault/short", "fault/libsql", "fault/readers", "fault/hooks"];
const child = Bun.spawn(
  [
    ...[process.execPath, "test", "--timeout=30000"],
    ...process.argv.slice(2),
    ...files.map((name) => `./test/${name}.test.ts`),
  ],
  {
    cwd: resolve(import.meta.dir, "../.."),
    env: { ...process.env, [soakVariable]: "1" },
    stdio: ["ignore", "inherit", "inherit"],
  },
);
process.exitCode = await child.exited;
