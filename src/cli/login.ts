import type { Command } from "commander";
import { SvcError } from "../sdk/index.ts";
import { type Asking, addCommon, ask, askingOf, type CommonFlags } from "./command.ts";
import { type Io, refused, usage } from "./io.ts";
import { profileName, readProfiles, writeProfiles } from "./profiles.ts";
import { secretText } from "./secret.ts";

type LoginOperation = "auth.login" | "platform.auth.login";

interface LoginFlags extends CommonFlags {
  email?: string;
  issuer?: string;
  as: string;
}

/** Logs in by a password or an issuer, and keeps the session in a profile. */
function addLogin(parent: Command, io: Io, operation: LoginOperation): void {
  const command = parent
    .command("login")
    .description("Logs in, and keeps the session of 24 hours in a profile.")
    .option(
      "--email <address>",
      "Who logs in by a password, which is asked for, or read from standard input; without it an issuer does.",
    )
    .option("--issuer <id>", "The issuer to log in by; may be left out where there is one.")
    .option("--as <profile>", "The profile that keeps the session.", "default");
  addCommon(command).action(async () => {
    const flags = command.optsWithGlobals() as LoginFlags;
    if (!profileName.test(flags.as))
      throw usage(`--as: must be letters, digits, . _ -, at most 64, not ${flags.as}`);
    if (flags.email !== undefined && flags.issuer !== undefined)
      throw usage("--email and --issuer: choose one");
    const asking = askingOf(io, flags);
    const token = await (flags.email === undefined
      ? byIssuer(asking, flags.issuer ?? (await onlyIssuer(asking, operation)))
      : byPassword(asking, operation, flags.email));
    const { url, environment, org } = asking.connection.target;
    const { profiles } = readProfiles(io);
    const profile = { server: url, key: token, ...(environment && { environment }), ...(org && { org }) };
    const file = writeProfiles(io, { current: flags.as, profiles: { ...profiles, [flags.as]: profile } });
    io.note(`profile ${flags.as} in ${file} is logged in at ${url}, and chosen`);
  });
}

async function byPassword(asking: Asking, operation: LoginOperation, email: string): Promise<string> {
  const password = await secretText(asking.io, undefined, `Password of ${email}: `);
  return (await ask<{ token: string }>(asking, operation, { email, password })).token;
}

async function onlyIssuer(asking: Asking, operation: LoginOperation): Promise<string> {
  interface Offered {
    issuers: { id: string; name: string; is_platform: boolean }[];
  }
  const { issuers } = await ask<Offered>(asking, "auth.issuers");
  const isPlatform = operation === "platform.auth.login";
  const meant = issuers.filter(({ is_platform }) => is_platform === isPlatform);
  const [first, second] = meant;
  if (first && !second) return first.id;
  if (!first) throw usage("--email or --issuer: the server offers no issuer to everyone");
  throw usage(`--issuer: one of ${meant.map(({ id, name }) => `${id} (${name})`).join(", ")}`);
}

interface Device {
  device_code: string;
  user_code: string;
  verification_uri: string;
  verification_uri_complete?: string;
  expires_in: number;
  interval: number;
}

/** A person says yes in a browser, on whichever machine (RFC 8628). */
async function byIssuer(asking: Asking, id: string): Promise<string> {
  const { io } = asking;
  const device = await ask<Device>(asking, "auth.oidc.device", { id });
  const { device_code, user_code, verification_uri, expires_in, interval } = device;
  io.note(`open ${device.verification_uri_complete ?? verification_uri} and confirm the code ${user_code}`);
  const until = io.clock.elapsed() + expires_in * 1_000;
  for (let waitMs = interval * 1_000; io.clock.elapsed() < until; ) {
    await io.clock.sleep(waitMs, io.signal);
    try {
      return (await ask<{ token: string }>(asking, "auth.oidc.deviceToken", { id, device_code })).token;
    } catch (error) {
      const isPending = error instanceof SvcError && (error.status === 409 || error.status === 429);
      if (!isPending) throw error;
      waitMs = Math.max(interval * 1_000, error.retryAfterMs ?? 0);
    }
  }
  throw refused("the code was not confirmed in time: log in again");
}

export const addUserLogin = (program: Command, io: Io): void => addLogin(program, io, "auth.login");

export const addPlatformLogin = (group: Command, io: Io): void => addLogin(group, io, "platform.auth.login");
