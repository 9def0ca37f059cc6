/** A page of the documentation: a file below `src`, or beside it in a whole tree. */
export interface DocsPage {
  /** Its address below `/docs`. */
  name: string;
  /** From the folder of the sources. */
  file: string;
  title: string;
  about: string;
}

export interface DocsGroup {
  title: string;
  pages: readonly DocsPage[];
}

const own = (name: string, title: string, about: string): DocsPage => ({
  ...{ name, title, about },
  file: `docs/pages/${name}.md`,
});

const other = (name: string, file: string, title: string, about: string): DocsPage => ({
  ...{ name, file, title, about },
});

/** Every page, in the order in which a reader meets them. */
export const groups: readonly DocsGroup[] = [
  {
    title: "Begin",
    pages: [
      own("start", "Start", "From an empty folder to a completed run."),
      own("concepts", "Concepts", "What svc is made of, and what it guarantees."),
    ],
  },
  {
    title: "Build",
    pages: [
      own("functions", "Functions and steps", "What runs, what is stored, and what happens after a crash."),
      own("events", "Events and schemas", "Facts, keys that make them one, and rules for their data."),
      own(
        "streams-projections",
        "Streams and projections",
        "Histories of entities, and what is read instead.",
      ),
      own("real-time", "Real time", "Subscriptions, topics and consumer groups."),
      own("webhooks", "Webhooks", "From providers in, to partners out."),
      own("state", "Keys, config and secrets", "Three stores for what is no event."),
      own("clients", "Clients in other languages", "Generated from the server's description of itself."),
      own("recipes", "Recipes", "A saga, fan-out, an approval, a rate limit, a report, webhooks, an agent."),
      own(
        "coming-from",
        "Coming from another system",
        "Temporal, Inngest, BullMQ, Kurrent: their words, and ours.",
      ),
    ],
  },
  {
    title: "Operate",
    pages: [
      own("run-failed", "A run failed, what now?", "Five commands, from the list to the resume."),
      own("access", "Access", "Roles allow, policies deny, the audit remembers."),
      own("cluster", "Cluster operations", "Which procedure you need, and where it stands."),
      own("traces", "Traces", "One trace from the caller to the last step, and your spans in it."),
      own("tuning", "Tuning", "What you see, where to look, what to turn."),
      own("security", "Security and threat model", "Whom svc protects from whom, and what stays with you."),
    ],
  },
  {
    title: "Look up",
    pages: [
      own("errors", "Errors", "Every kind of error: what it means and what to do."),
      own("limits", "Limits", "Every limit by its name, with its value."),
      other("sdk", "sdk/README.md", "The SDK", "Every option of the SDK for TypeScript."),
      other("answers", "API.md", "What the API answers", "Rules that hold for every call."),
      other("commands", "cli/README.md", "The command line", "Every command."),
      other("reference", "REFERENCE.md", "Reference", "Settings, frames, loops, tables, metrics, checks."),
      other("wire", "../proto/README.md", "The wire", "RPC messages, for clients in any language."),
      other(
        "runbook",
        "../cluster/README.md",
        "Runbook",
        "Several nodes: start, drain, upgrade, back up, restore.",
      ),
      other("glossary", "GLOSSARY.md", "Glossary", "One meaning a word."),
      other("changelog", "CHANGELOG.md", "Changelog", "What changed, and what an operator has to do."),
    ],
  },
];
