import type { Landed } from "../migrate.ts";
import type { StoreEngine } from "../store.ts";

/** What landed on databases of 0.40.0: version, SHA-256 on PostgreSQL, on libSQL if it differs, and name. */
const text = `
1 Fsg4q2Hgm_QoEDdyDQJrp0Ykl_L3ofSpEBYMpaPASec 7Hb-FaajarTqznh16IPRZKY14Mb8iSHQYhI03OU6LPs first
2 eDy41fc91mzLSsW3gsjfO_br4NqfhFQtTodb3sUK-4g = cluster
3 lIzWHjI2L7wr-DufjK0QQg4IO5FTgEu0MS-Cu0qaASU 47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU room_for_ends
4 xej9H9fZSXZvStt3MIDsP6tHXwDvvMudBSQeazXDG_8 O3CKI1xJqy8CHsYJ6u1TkF4xjAHTgSAAtfYA-CXfgkE waits
5 x23L9DlenmqXwWPsxz_urhGbbLHL6aeu0Xb0XmDeSv0 ZktctnyRCzCdwabqy7dJdXgZ2nL_tUufeYSotUQUCRA steering
6 LpP51GYgKk9G_7zRZ7_5tgh2bJbC8vUc8EkoO5rfvEg 608Pneeul70l4KwWvQNalzifkIUfIrC2WWavmKAdG-c starts
8 fu4MJOzEamShQgaZYi3MwEuHN344cPlaclBcjWneipk = push
9 5em1gRg0slWwh8t5gN93Sxt0_4oRSOgW_FETV50Z3rA yCiLBjCVlV4_B-ejKUVGWy53S76C631YaQU1nSZgMi8 lanes
10 H6VA_7rKsAMnzw8jiV5_12qVJEIEMXMXH5ihbTbMNsE = explain
11 8Wxar-nf4Paji9Vuwd_F9vD2ldXBaA_ee1VwL4o7Qho = access
12 ObAZV87meq0PH7d_EaUWg4l-Mu6VeHoMXJ1bdNRse6I = sessions
13 4e1lBGz0maajsa_2twLLqFmQ1fAMbrSBmQN1QQ1mhrw = tenancy
14 88aLsvpnk_92_V8VaE398VFpVNK6VuYe-Xl2TiIhxvs = platform
15 1DwZJx0UC2l8SQnoAk7NpWMwzSEBKnzqpKjyJfjlnYY = audit
17 UzgXyAigKZidD7J6_FivdbLzVZ7p4QpSzH9Yv1pedLI = purging
18 6ywsEHd6l9ZXq9E2lcQVjJyJFwRNDnNaIbVlYFw-Xlo uZpaMejJeX0u-7cDpAsJSDlSxrpSrzhF6PMbFb0T38M topics
19 U6rANmni5lHK7ZMqOZM7OZhhXqHlBI6gt4PhoDXOn7g XEPj89xXrOamQL-fS0Mn_eU-oGy8XqkaEHZ-MzesfQE groups
20 piETwZb6sSfT0GtTrpQqBGcyDHPnMxI_Qd0qGKpc0FE E7Zt71hrE4Gkv3dvyCgoBtN7q4_da6GQ3e-7OpdShTU outbox
21 75klbNTBJkwJqAMIorWaeqksQGK1BALWqLyLdLNt7eY jVftReImmFWQnl-DmV0StPh4RjHgECQLHcfH6UZ5kX4 credentials
24 ke_QKYZztW-I5wPOHlw_o7gjUa5W4Zdk4eglNlaW4Ic = endpoint_keys
26 Qy0oRLOdGTXgiS0YY-u_XcHu9ArFz1KF4pwWGpLdHlQ 8u9NUiQQiT5MQBMq6pp7dLvUmVvMgoQz6JHqSvWVDTg shares
27 -eJVvaC01NnusTl-I4EX0_763croOIY_qRNuLET0ar0 bpka7thn6PzBgX8mCCgyKUTaj5DvEF0ldgZHY12XErU login_attempts
28 47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU bCE726MDf_BgUu24s0lbw41U4jgBz6Bi4P_ku7SROVQ event lists
29 PM15xaofJepdnB2rBlwdms6JfTa82WynVZ8CRhrqTp4 NSSWSmcThpkluEfNdTG0YI2vmTvwgIyvhfJ6jbZEguE streams
30 qRloQt74bFAMWpg2jZKUqKXS2T5rhmkv51-Uj8Rx7rA k_lltRKv89mlXCKk6_lFtNgqs_rdUgG2vzSFUfFkZBc projections
31 v0dGiTMjAX9gQe5cOZkyy50WF59RrUUnz82HswhGl-g = sql
32 AZTo3A76Vjyzn0yPKyrqSO7Kex8aahYjthXC0TgW7sw 1nqS1eD2CW7S-9GwtWCllXAkrP4dnnU5K_L755DGKo0 kv_and_secrets
33 1a_I12zbQe0u3cU5Xvof-ktL2nNojY1s-DXuaAEGsQk = schemas
34 YP-6T0h3w3afsY3facVlGZ56hittJgs1JP4_ETFrO0M = webhooks
35 4t2q6kNz82HNxlOEesqEVZfrmYQS-DV4wOh6R5npXzg kvFqA1kcc6Ltpo6hQDI_Hef14ug3pPVsMqGTE5nP_GA webhook_endpoints
36 Nj-PzxULQz7frsE7kzob5wzh1IPGvTpuSlV3ty4uI0g = agent_tools
37 IhfEF64mAPP8pbLU5ibzXsuoRaFrYdU4QUdED7aWH4k = exports
38 5c4l554HCPpKcOerYpu1Tra6pi1YY6s_9vJdqh3GQJc = flow
39 OEPOTobBv0BCilsQYFzJxHYuIO_FyNNyQcuIEgKdAyc = undo
40 NxKqIttp4qBiMbVBq8T97TYBxfrlav-aNGfgJm_nI9A = flow_control
41 uuDOhbKCaThT3J_mM0a6j4lKj65zhfQ3aXnF5b3NrTc = gates
42 g9NEVYhMesE3tm6cMXgM-2vFXA7EhiR-LL-T3XM8BYY = webhook keys
43 wqrQ6VpRuynx4izzf_zIDRtHI12HSXr5Qy-ASZaUwAg = kv_revisions
44 7pPGD4lVCmuRp_lo-x3Qdrzd2sjHVzxZMU3AHwKJKsU = causality
45 pqMJqAx4qmTw2j8hBwoQeiZGjyuzTlee-6JU0lmXbeE qUUGNt9BX5QMdZLfNBHh5nqKIKA5iSUSFL8aKL3yyEU repairs
46 NDfuRJGeMkN_uaUQDCk_3tgzoLmgH03PoyhH4_pOJnM = invoked_functions
47 kLkJeRHdbQmD2EXrYi8_KnGQGFx-Sm9TMu-nqR_D4PI = checks
48 SqEljCHLmXfT-EVN15iIQoq58GCQwV618GAGeGLZGTQ = state_waits
49 GRGsHFvXe6tYYWJeSCOyqHU3TTfd24wfT5tVBlstWuI = batches
50 qP7TfbEazRrVCXRtGhAlTUx1h1_BElDN6rr5nfskVe4 hYZ4znILJlhN4FSCJAZ0pky4bMhDZpUnXt1gOPvlNcU finding
51 m8S1WF7eHEGb0faIyrqL-crpndZ5C9fN9PBBRnw2OPE = replays
52 sQFoer_ubxhZKLpoeLFMQ50DIIZTTQOhqJDvoplmugA = kv by revision
54 BGUG03gdwAUWVRRPh7UoMmFNn055-Lpx_HP6dMeya4A = delivery lists
56 DfvwcRj7cfs6zkFvdC2lvfzfJCcQfSkerhlreuwXJ2E = primary server
58 qy6FHUHo2LhwMiZRrDQwOE3-snATWJigwcgtTfoBf4Q 47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU one way
62 XWzo7qwHkflrVMxOiC-vmRMKLj58B53zU3E3MZao-Vw 47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU room
63 K9YPwHP1NHsCCyaR6h6EhD5n_-kaXXN3CieK0Jummc0 = attribute deletion
64 NsIdScFvEXNlTg_qBGzSKrlge_mUe5i-4OYaNxj6vhY = sessions listed
65 21NkuOh8083og7q9Yqcba8hWGokh8WBbB8RK6xOfyJo = letters listed`;

const hex = (hash: string): string => Buffer.from(hash, "base64url").toString("hex");

/** The oldest databases that this program accepts have these; a new one is recorded to have them, too. */
export const landedOf040 = (engine: StoreEngine): Landed[] =>
  text
    .trim()
    .split("\n")
    .map((line) => {
      const [, version = "", postgres = "", libsql = "", name = ""] =
        /^(\d+) (\S+) (\S+) (.+)$/.exec(line) ?? [];
      const hash = hex(engine === "postgres" || libsql === "=" ? postgres : libsql);
      return { version: Number(version), name, hash, compatible: version === "1" ? 0 : 1 };
    });
