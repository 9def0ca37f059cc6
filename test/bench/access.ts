/** `bun run bench:access gate|login [pairs]|purge [libsql|postgres] [rows]`: what access, tenancy and audit cost; each says what it shows. */
import { benchGate } from "./access-gate.ts";
import { benchLogin } from "./access-login.ts";
import { benchPurge } from "./access-purge.ts";

const [name, ...given] = process.argv.slice(2);
const benches: Record<string, () => Promise<void>> = {
  gate: benchGate,
  login: () => benchLogin(Number(given[0] ?? 200)),
  purge: () => benchPurge(given[0] === "postgres" ? "postgres" : "libsql", Number(given[1] ?? 1_000_000)),
};
const bench = benches[name ?? ""];
if (!bench) {
  console.error(`one of: ${Object.keys(benches).join(", ")}`);
  process.exit(2);
}
await bench();
process.exit(0);
