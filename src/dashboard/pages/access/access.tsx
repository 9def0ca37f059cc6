import { accessScope } from "../../lib/access.ts";
import { address, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Missing, Page, Tabs } from "../../ui/basics.tsx";
import { Issuers } from "./issuers.tsx";
import { Keys } from "./keys.tsx";
import { Roles } from "./roles.tsx";
import { Sessions } from "./sessions.tsx";
import { Users } from "./users.tsx";

const tabs = [
  ["users", "Users", Users],
  ["roles", "Roles", Roles],
  ["keys", "Keys", Keys],
  ["sessions", "Sessions", Sessions],
  ["issuers", "Sign-in", Issuers],
] as const;

/** Issuers are shown to those who see the users. */
const readsOf = (tab: "users" | "roles" | "keys" | "issuers") => (tab === "issuers" ? "users" : tab);

/** Who may do what: users, roles and keys of the org, or of the platform. All see their own sessions. */
export function AccessPage() {
  const scope = accessScope();
  const offered = tabs.filter(([tab]) => tab === "sessions" || may(scope.reads[readsOf(tab)]));
  const asked = address.value.query.get("tab");
  const [shown, , Shown] = offered.find(([tab]) => tab === asked) ?? offered[0] ?? [];
  if (!Shown) return <Missing title="Your roles do not show this page" />;
  return (
    <Page
      title="Access"
      about={scope.isPlatform ? "Of the platform" : "Of the organization, in all its environments"}
    >
      <Tabs
        label="Who"
        tabs={offered.map(([tab, name]) => ({
          ...{ name, isShown: tab === shown },
          href: hrefOf(["access"], { tab: tab === offered[0]![0] ? "" : tab }),
        }))}
      />
      <Shown key={shown} scope={scope} />
    </Page>
  );
}
