import { expect } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { TestServer } from "../support/server.ts";
import type { Acting } from "./acting.ts";

const denied = { Actions: "events:emit", Resources: "irn:svc:*:*:event:*:salary.*" };

/** Users, roles and policies are the same pages for an organization and for the platform. */
export async function manageAccess(
  on: Acting,
  { viewer, hasVersions }: { viewer: string; hasVersions: boolean },
  api: (path: string) => Promise<{ name?: string; email?: string; has_secret?: boolean }[]>,
): Promise<void> {
  const row = (name: RegExp) => on.main.getByRole("row", { name });
  const names = async (path: string) => (await api(path)).map(({ email, name }) => email ?? name);
  await on.go("policies");
  await on.send({ opens: "New policy…", typed: { Name: "no wages", ...denied }, sends: "Make" });
  await on.heading("no wages");

  await on.go("access?tab=roles");
  const typed = { Name: "clerk", "Grants what this role may": { option: viewer } };
  await on.send({ opens: "New role…", typed, sends: "Make" });
  await row(/^clerk/).waitFor();
  await on.press("Policies…", row(/^clerk/));
  const dialog = on.page.getByRole("dialog");
  await on.hands.choose(dialog.getByLabel("Give it another"), "no wages");
  await on.press("Give", dialog);
  await dialog.getByRole("link", { name: "no wages" }).waitFor();
  expect((await api("roles")).find(({ name }) => name === "clerk")).toMatchObject({ policy_count: 1 });
  await on.press("Take away", dialog);
  await dialog.getByText("Nothing is denied").waitFor();
  await on.page.keyboard.press("Escape");

  await on.go("access");
  const made = {
    Email: "ada@example.test",
    Name: "Ada",
    Password: "correct horse battery staple",
    clerk: true,
  } as const;
  await on.send({ opens: "New user…", typed: made, sends: "Make" });
  await row(/^ada@/).getByText("clerk").waitFor();
  const edited = { Name: "Countess Ada", clerk: true, [viewer]: true } as const;
  await on.send({ opens: "Edit…", within: row(/^ada@/), typed: edited, sends: "Save" });
  await row(/^ada@.*Countess/)
    .getByText(viewer)
    .waitFor();
  expect(await row(/^ada@/).getByText("clerk").count()).toBe(0);
  await on.send({ opens: "Delete…", within: row(/^ada@/), sends: "Delete the user" });
  await row(/^ada@/).waitFor({ state: "detached" });
  expect(await names("users")).not.toContain("ada@example.test");

  await on.go("access?tab=issuers");
  const provider = {
    ...{ Name: "Example", URL: "https://login.example", Client: "svc", "Client secret": "a secret" },
    Roles: `engineers = ${viewer}\n* = clerk`,
  };
  await on.send({ opens: "New issuer…", typed: provider, sends: "Make" });
  await row(/^Example/)
    .getByText(`engineers = ${viewer}`)
    .waitFor();
  const renamed = { Name: "Exemplary", Roles: `a=b = ${viewer}` };
  await on.send({ opens: "Edit…", within: row(/^Example/), typed: renamed, sends: "Save" });
  await row(/^Exemplary/)
    .getByText(`a=b = ${viewer}`)
    .waitFor();
  expect((await api("issuers"))[0]).toMatchObject({ name: "Exemplary", has_secret: true });
  if (!hasVersions) {
    // The platform keeps one whose password works all the same.
    await on.go("access");
    const glass = { "By password even while passwords are off (break glass)": true } as const;
    await on.send({ opens: "Edit…", within: row(/^root@/), typed: glass, sends: "Save" });
    await on.go("access?tab=issuers");
  }
  await on.send({ opens: "Passwords off…", sends: "Switch off" });
  await on.main.getByText("Passwords are off").waitFor();
  await on.send({ opens: "Passwords on…", sends: "Switch on" });
  await on.main.getByRole("button", { name: "Passwords off…" }).waitFor();
  await on.send({ opens: "Delete…", within: row(/^Exemplary/), sends: "Delete the issuer" });
  await row(/^Exemplary/).waitFor({ state: "detached" });

  await on.go("access?tab=roles");
  await on.send({ opens: "Delete…", within: row(/^clerk/), sends: "Delete the role" });
  await row(/^clerk/).waitFor({ state: "detached" });
  expect(await names("roles")).not.toContain("clerk");

  await on.go("policies");
  await on.hands.press(on.main.getByRole("link", { name: "no wages" }));
  await on.heading("no wages");
  await on.hands.fill(on.main.getByLabel("Actions"), "events:emit, runs:read");
  await on.send({ opens: "Save…", typed: { Reason: "runs tell too" }, sends: "Save" });
  await on.told("no wages is at version 2");
  const whole = on.page.locator(".page-actions");
  const versions = on.main.getByRole("listitem");
  if (hasVersions) {
    await on.hands.press(versions.nth(1).locator("summary"));
    await on.send({ opens: "Roll back to this…", within: versions.nth(1), sends: "Roll back" });
    await on.told("Policy rolled back");
    expect((await api("policies"))[0]).toMatchObject({ version: 3, actions: "events:emit" });
    await on.main.locator("dd", { hasText: /^3$/ }).waitFor();
  }
  await on.send({ opens: "Delete…", within: whole, sends: "Delete the policy" });
  await on.heading("Policies");
  expect(await names("policies")).not.toContain("no wages");
}

/** A user who has a password is parted from a person of a provider. */
export async function partIdentity(
  on: Acting,
  server: TestServer,
  { org, user, email }: { org: string; user: string; email: string },
): Promise<void> {
  const { store } = server.running.domain;
  await store.write((session) =>
    session.run(sql`INSERT INTO identities (org_id, issuer, subject, user_id, created_at)
      VALUES (${org}, 'https://login.example', 'person', ${user}, 1)`),
  );
  await on.go("access");
  const within = on.main.getByRole("row").filter({ hasText: email });
  await on.press("Sign-ins…", within);
  const dialog = on.page.getByRole("dialog");
  await dialog.getByRole("option", { name: /person$/ }).waitFor({ state: "attached" });
  await on.press("Part from the user", dialog);
  await dialog.waitFor({ state: "detached" });
  expect(await store.all(sql`SELECT subject FROM identities WHERE user_id = ${user}`)).toEqual([]);
}
