import { resolve } from "node:path";
import type { Command } from "commander";
import { stated } from "../../kit/cases.ts";
import { addCommon, type CommonFlags, confirm, formOf } from "../command.ts";
import { keyIn, urlOf } from "../connection.ts";
import type { Group } from "../group.ts";
import { type Io, refused, usage } from "../io.ts";
import { type Profile, type Profiles, profileName, readProfiles, writeProfiles } from "../profiles.ts";
import { secretText } from "../secret.ts";
import { shown } from "../show.ts";

function found({ profiles }: Profiles, name: string): Profile {
  const profile = Object.hasOwn(profiles, name) ? profiles[name] : undefined;
  if (!profile) throw refused(`there is no profile ${name}: svc profile list shows them`);
  return profile;
}

interface AddFlags extends CommonFlags {
  withKey?: boolean;
}

async function add(name: string, flags: AddFlags, io: Io): Promise<void> {
  const { server, env, asOrg, keyFile, withKey } = flags;
  if (!profileName.test(name))
    throw usage(`a profile's name has letters, digits, . _ -, at most 64, not ${name}`);
  if (withKey && keyFile !== undefined) throw usage("--with-key and --key-file: choose one");
  const file = keyFile === undefined ? undefined : resolve(io.folder, keyFile);
  if (file !== undefined) keyIn(file);
  const profiles = readProfiles(io);
  if (Object.hasOwn(profiles.profiles, name)) await confirm(`Replace profile ${name}?`, flags, io);
  const profile: Profile = {
    ...(server !== undefined && { server: urlOf(server) }),
    ...stated({ environment: env, org: asOrg, keyFile: file }),
    ...(withKey && { key: await secretText(io, undefined, "Key: ") }),
  };
  const next = { current: profiles.current ?? name, profiles: { ...profiles.profiles, [name]: profile } };
  io.note(`profile ${name} is in ${writeProfiles(io, next)}`);
}

function addCommands(group: Command, io: Io): void {
  const adding = group
    .command("add <name>")
    .description("Keeps a server, an environment, an org and a key under a name.")
    .option("--with-key", "Ask for the key, or read it from standard input, and keep it in the profile.")
    .option("--yes", "Do not ask before a profile of that name is replaced.");
  addCommon(adding).action((name: string) => add(name, adding.optsWithGlobals(), io));
  const listing = group.command("list").description("Profiles of this user, without their keys.");
  addCommon(listing).action(async () => {
    const { current, profiles } = readProfiles(io);
    const rows = Object.entries(profiles).map(([name, { key, ...rest }]) => ({
      ...{ name, chosen: name === current, ...rest },
      hasKey: key !== undefined || rest.keyFile !== undefined,
    }));
    const columns = ["name", "chosen", "server", "environment", "org", "hasKey"];
    await io.out(shown(rows, formOf(listing.optsWithGlobals()), { io, columns }));
  });
  group
    .command("use <name>")
    .description("Chooses the profile of every command that names none.")
    .action((name: string) => {
      const profiles = readProfiles(io);
      found(profiles, name);
      writeProfiles(io, { ...profiles, current: name });
    });
  group
    .command("remove <name>")
    .description("Forgets a profile and its key.")
    .action((name: string) => {
      const { current, profiles } = readProfiles(io);
      found({ profiles }, name);
      const { [name]: _gone, ...rest } = profiles;
      writeProfiles(io, { ...(current !== undefined && current !== name && { current }), profiles: rest });
    });
}

export const profileGroup: Group = {
  name: "profile",
  about: "Servers and keys of this user, by name.",
  more: addCommands,
};
