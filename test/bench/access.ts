/** `bun run bench:access purge [libsql|postgres] [rows]`: what access, tenancy and audit cost; each says what it shows. */
import { benchPurge } from "./access-purge.ts";

const [name, ...given] = process.argv.slice(2);
const benches: Record<string, () => Promise<void>> = {
  purge: () => benchPurge(given[0] === "postgres" ? "postgres" : "libsql", Number(given[1] ?? 1_000_000)),
};
const bench = benches[name ?? ""];
if (!bench) {
  console.error(`one of: ${Object.keys(benches).join(", ")}`);
  process.exit(2);
}
await bench();
process.exit(0);
