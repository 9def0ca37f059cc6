import { resolve } from "node:path";
import { settings } from "../../src/settings/settings.ts";
import { executableVariable } from "./process.ts";

/** Of every server that is given no other, so that several can share a database. */
export const testMasterKey = "5e".repeat(32);

export type SettingValues = Partial<Record<keyof typeof settings, string | number | boolean>>;

interface Program {
  /** In front of its own command line. */
  command?: readonly string[];
  /** Instead of the executable or these sources. */
  program?: readonly string[];
}

/** What stands in front of the command line may be for `bun` alone. */
function programOf({ program, command }: Program): readonly string[] {
  const executable = process.env[executableVariable];
  if (program) return program;
  if (executable !== undefined && !command) return [executable];
  return [process.execPath, "run", resolve(import.meta.dir, "../../src/main.ts")];
}

/** The variables that a server shall see: those given, and none of ours that happen to be set here. */
function environmentOf(values: SettingValues): string[] {
  const unset = Object.keys(process.env).filter((name) => /^(SVC_|NATS_|LOG_)/.test(name));
  const given = Object.entries({ logFormat: "json", grpcPort: 0, masterKey: testMasterKey, ...values }).map(
    ([name, value]) => {
      const row: { env?: string } = settings[name as keyof typeof settings];
      return `${row.env}=${value}`;
    },
  );
  return ["env", ...unset.flatMap((name) => ["-u", name]), ...given];
}

/** Starts a server of its own with these settings. */
export const serverCommand = (program: Program, values: SettingValues): string[] => [
  ...(program.command ?? []),
  ...environmentOf(values),
  ...programOf(program),
  "serve",
];
