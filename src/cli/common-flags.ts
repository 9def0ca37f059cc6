/** Flags of every command that asks a server. */
export const commonFlags: readonly [flags: string, about: string][] = [
  ["-s, --server <url>", "The server [SVC_SERVER_URL, else http://127.0.0.1:9123]."],
  ["--env <name>", "Name or id of the environment [SVC_ENV, else the key's own]."],
  ["--as-org <id>", "The org that a platform credential acts in."],
  ["--profile <name>", "A profile of svc profile [SVC_PROFILE, else the chosen one]."],
  ["--key-file <file>", "A file with the key [SVC_API_KEY]."],
  ["--json", "The whole answer as JSON."],
  ["--jsonl", "JSON, one item a line."],
  ["-v, --verbose", "Say which call is made, and how long it takes."],
];

const words = new Set(commonFlags.flatMap(([flags]) => flags.match(/-{1,2}[\w-]+/g) ?? []));

/** Whether an argument is one of them, and not a setting of the server. */
export const isCommonFlag = (argument: string): boolean => words.has(argument.split("=", 1)[0]!);

export const asksForHelp = (argument: string): boolean => argument === "--help" || argument === "-h";
