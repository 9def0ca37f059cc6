import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { type Io, usage } from "./io.ts";

const ProfileShape = Type.Object(
  {
    server: Type.Optional(Type.String()),
    environment: Type.Optional(Type.String()),
    org: Type.Optional(Type.String()),
    key: Type.Optional(Type.String()),
    keyFile: Type.Optional(Type.String()),
  },
  { additionalProperties: false },
);

const ProfilesShape = Type.Object(
  {
    current: Type.Optional(Type.String()),
    profiles: Type.Record(Type.String(), ProfileShape),
  },
  { additionalProperties: false },
);

/** How one server is reached. */
export type Profile = typeof ProfileShape.static;

export type Profiles = typeof ProfilesShape.static;

export const profileName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

export const profilesFileOf = ({ environment, home }: Pick<Io, "environment" | "home">): string =>
  join(environment.XDG_CONFIG_HOME || join(home, ".config"), "svc", "profiles.json");

const ownerOnly = 0o600;
const othersMay = 0o077;

/** The profiles of this user; none when there is no file. */
export function readProfiles(io: Pick<Io, "environment" | "home">): Profiles {
  const file = profilesFileOf(io);
  if (!existsSync(file)) return { profiles: {} };
  if (statSync(file).mode & othersMay)
    throw usage(`${file} can be read by others on this machine: chmod 600 ${file}`);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, "utf8"));
  } catch {
    throw usage(`${file} is not JSON: mend it, or remove it and add its profiles again`);
  }
  const [wrong] = Value.Errors(ProfilesShape, value);
  // The value is not shown: it may be a key.
  if (wrong)
    throw usage(
      `${file}: ${wrong.path || "/"}: ${wrong.message}: mend it, or remove it and add its profiles again`,
    );
  return value as Profiles;
}

/** Whole or not at all, and never readable by others for a moment. */
export function writeProfiles(io: Pick<Io, "environment" | "home">, profiles: Profiles): string {
  const file = profilesFileOf(io);
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const next = `${file}.next`;
  writeFileSync(next, `${JSON.stringify(profiles, null, 2)}\n`, { mode: ownerOnly });
  chmodSync(next, ownerOnly);
  renameSync(next, file);
  return file;
}
