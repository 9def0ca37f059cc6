import { ask, type PlainCommand, sayRead } from "../command.ts";
import { addConfigFiles } from "../config-file.ts";
import type { Group } from "../group.ts";
import { usage } from "../io.ts";
import { addSecretSet } from "../secret.ts";
import { shown } from "../show.ts";

interface StoredKey {
  key: string;
  /** Base64. */
  value?: string;
}

/** Bytes as text, or as they came where they are none. */
function textOf(base64: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.from(base64, "base64"));
  } catch {
    return base64;
  }
}

const getKey: PlainCommand = {
  name: "get",
  operation: "kv.get",
  takes: ["bucket", "key"],
  about: "The value of a key: the newest, or that of a revision which is still kept. In JSON it is base64.",
  flagsToo: [["--raw", "The value alone, as the bytes that it is."]],
  async does(asking, input, { raw }) {
    const { io, form, flags } = asking;
    if (raw && flags.watch) throw usage("--raw and --watch: choose one");
    const read = () => ask<StoredKey>(asking, "kv.get", input);
    if (raw) return void (await io.out(Buffer.from((await read()).value ?? "", "base64")));
    await sayRead(asking, async () => {
      const answer = await read();
      const said = form === "people" ? { ...answer, value: textOf(answer.value ?? "") } : answer;
      return shown(said, form, { io, items: "" });
    });
  },
};

const onlyThen =
  "With --if-none-match '*' only where there is none, with --if-match REVISION only at that revision.";

/** Keys and values, config documents, secrets. */
export const stateGroups: readonly Group[] = [
  {
    name: "kv",
    about: "Buckets of keys and values.",
    plain: [
      { name: "buckets", operation: "kv.buckets.list", shows: { items: "buckets" } },
      { name: "create", operation: "kv.buckets.create", takes: ["name"] },
      { name: "info", operation: "kv.buckets.get", takes: ["bucket"] },
      {
        name: "drop",
        operation: "kv.buckets.delete",
        takes: ["bucket"],
        confirms: "Delete bucket {bucket} with all its keys?",
      },
      { name: "keys", operation: "kv.keys.list", takes: ["bucket"], shows: { items: "keys" } },
      getKey,
      {
        name: "revisions",
        operation: "kv.revisions",
        takes: ["bucket", "key"],
        shows: { items: "revisions" },
      },
      {
        name: "put",
        operation: "kv.put",
        takes: ["bucket", "key"],
        flags: { body: "value" },
        about: `Sets a key to --value, as it is. ${onlyThen}`,
      },
      {
        name: "delete",
        operation: "kv.delete",
        takes: ["bucket", "key"],
        confirms: "Delete key {key} of {bucket}?",
        about: "Deletes a key; with --purge also the values before it.",
      },
      { name: "watch", operation: "kv.watch", takes: ["bucket"] },
    ],
  },
  {
    name: "config",
    about: "Config documents of an environment; and the server's own config file.",
    plain: [
      { name: "list", operation: "config.list" },
      { name: "get", operation: "config.get", takes: ["name"], shows: { items: "" } },
      {
        name: "put",
        operation: "config.put",
        takes: ["name"],
        flags: { body: "data" },
        shows: { items: "" },
        about: `Sets a document to --data. ${onlyThen}`,
      },
      {
        name: "patch",
        operation: "config.patch",
        takes: ["name"],
        flags: { body: "data" },
        shows: { items: "" },
        about: "Puts the fields of --data over those of a document.",
      },
      { name: "history", operation: "config.history", takes: ["name"], shows: { items: "history" } },
      { name: "rollback", operation: "config.rollback", takes: ["name", "revision"], shows: { items: "" } },
      { name: "watch", operation: "config.watch", takes: ["name"] },
      {
        name: "delete",
        operation: "config.delete",
        takes: ["name"],
        confirms: "Delete config {name}?",
        about: "Deletes a document; one that does not exist is deleted already.",
      },
    ],
    more: addConfigFiles,
  },
  {
    name: "secret",
    about: "Secrets that functions get.",
    plain: [
      { name: "list", operation: "secrets.list" },
      { name: "get", operation: "secrets.get", takes: ["name"] },
      { name: "functions", operation: "secrets.functions", takes: ["name"] },
      { name: "delete", operation: "secrets.delete", takes: ["name"], confirms: "Delete secret {name}?" },
    ],
    more: addSecretSet,
  },
];
