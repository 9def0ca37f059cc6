import { type Config, parseSettings } from "../settings/settings.ts";
import type { FiledConfig } from "./config-file.ts";
import { CommandFailure, type Io } from "./io.ts";

type ServeArguments =
  | { ok: true; config: Config; organizations: FiledConfig["organizations"]; notices: readonly string[] }
  | { ok: false; errors: readonly string[] };

/** The file of `-f FILE`, and the other arguments. */
function fileIn(argv: readonly string[]): { file?: string; rest: readonly string[]; isBare?: boolean } {
  const at = argv.findIndex((one) => one === "-f" || one === "--file" || one.startsWith("--file="));
  if (at < 0) return { rest: argv };
  const word = argv[at]!;
  const isOne = word.startsWith("--file=");
  const file = isOne ? word.slice("--file=".length) : argv[at + 1];
  const rest = [...argv.slice(0, at), ...argv.slice(at + (isOne ? 1 : 2))];
  return file === undefined || file === "" ? { rest, isBare: true } : { rest, file };
}

/** What `svc serve` starts with: flags and variables, or a config file and flags. */
export async function serveArguments(
  argv: readonly string[],
  environment: Io["environment"],
  folder: string,
): Promise<ServeArguments> {
  const { file, rest, isBare } = fileIn(argv);
  if (isBare) return { ok: false, errors: ["-f: needs a value, the config file"] };
  if (file === undefined) {
    const parsed = parseSettings(rest, environment);
    return parsed.ok ? { ...parsed, organizations: [], notices: [] } : parsed;
  }
  const { configText, readConfig } = await import("./config-file.ts");
  try {
    const outcome = readConfig(configText(file, { folder }), rest, environment);
    return outcome.ok ? { ok: true, ...outcome.filed } : outcome;
  } catch (error) {
    if (error instanceof CommandFailure) return { ok: false, errors: [error.message] };
    throw error;
  }
}
