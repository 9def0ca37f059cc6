import type { Command } from "commander";
import { addCommon, ask, askingOf, type CommonFlags } from "./command.ts";
import { type Io, usage } from "./io.ts";
import { profileName, readProfiles, writeProfiles } from "./profiles.ts";
import { secretText } from "./secret.ts";

/** Logs in by a password and keeps the session in a profile. */
function addLogin(parent: Command, io: Io, operation: "auth.login" | "platform.auth.login"): void {
  const command = parent
    .command("login")
    .description("Logs in, and keeps the session of 24 hours in a profile.")
    .requiredOption(
      "--email <address>",
      "Who logs in; the password is asked for, or read from standard input.",
    )
    .option("--as <profile>", "The profile that keeps the session.", "default");
  addCommon(command).action(async () => {
    const flags = command.optsWithGlobals() as CommonFlags & { email: string; as: string };
    if (!profileName.test(flags.as))
      throw usage(`--as: must be letters, digits, . _ -, at most 64, not ${flags.as}`);
    const asking = askingOf(io, flags);
    const password = await secretText(io, undefined, `Password of ${flags.email}: `);
    const { token } = await ask<{ token: string }>(asking, operation, { email: flags.email, password });
    const { url, environment, org } = asking.connection.target;
    const { profiles } = readProfiles(io);
    const profile = { server: url, key: token, ...(environment && { environment }), ...(org && { org }) };
    const file = writeProfiles(io, { current: flags.as, profiles: { ...profiles, [flags.as]: profile } });
    io.note(`profile ${flags.as} in ${file} is logged in at ${url}, and chosen`);
  });
}

export const addUserLogin = (program: Command, io: Io): void => addLogin(program, io, "auth.login");

export const addPlatformLogin = (group: Command, io: Io): void => addLogin(group, io, "platform.auth.login");
