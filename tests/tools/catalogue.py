"""Over five hundred tools of one imaginary company, many of them close to each other: the same five or six things can
be done with ninety kinds of objects in two dozen systems, which name them each in their own way.

A line of `SYSTEMS` is what the author of that system's tools would write once; the tools follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from treadle import ToolContext, ToolOutput, ToolSpec

# How each house style names and describes what can be done. {o} object, {os} objects, {s} system, {n} what it is.
PLAIN = {
    "create_{o}": "Create a new {o} in {s}. {n}",
    "get_{o}": "Get one {o} from {s} by its id, with all its fields. {n}",
    "list_{os}": "List {os} in {s}, newest first, page by page. {n}",
    "search_{os}": "Search {os} in {s} by words and filters. {n}",
    "update_{o}": "Update fields of an existing {o} in {s}. {n}",
    "delete_{o}": "Delete a {o} from {s} for good. {n}",
}
CAMEL = {
    "add {o}": "Adds {a} {o} to {s}. {n}",
    "fetch {o}": "Fetches a single {o} out of {s}. {n}",
    "find {os}": "Finds {os} in {s} that match a query. {n}",
    "edit {o}": "Changes an existing {o} of {s}. {n}",
    "remove {o}": "Removes {a} {o} from {s}. {n}",
    "export {os}": "Exports {os} of {s} as CSV. {n}",
}
TERSE = {
    "new_{o}": "{s}: make a new {o}. {n}",
    "show_{o}": "{s}: show a {o} and its history. {n}",
    "all_{os}": "{s}: every {o}, with filters. {n}",
    "change_{o}": "{s}: modify a {o}. {n}",
    "archive_{o}": "{s}: put a {o} away without destroying it. {n}",
    "count_{os}": "{s}: how many {os} there are, grouped by a field. {n}",
}

# prefix, name of the system, style, objects: (one, several, what it is, extra parameter: what that is), further tools
SYSTEMS: list[tuple[str, str, dict[str, str], list[tuple[str, str, str, str, str]], dict[str, str]]] = [
    (
        "crm",
        "the customer relationship system",
        PLAIN,
        [
            (
                "contact",
                "contacts",
                "A contact is a person we know at a company.",
                "email",
                "their email address",
            ),
            ("account", "accounts", "An account is a company we sell to.", "industry", "line of business"),
            (
                "lead",
                "leads",
                "A lead is somebody who may become a customer.",
                "source",
                "where they heard of us",
            ),
            (
                "deal",
                "deals",
                "A deal is a sale being negotiated, with a stage and an amount.",
                "stage",
                "stage of the pipeline",
            ),
        ],
        {
            "convert_lead": "Convert a qualified lead into a contact, an account and a deal.",
            "merge_contacts": "Merge duplicate contacts into one, keeping the history of both.",
            "log_call": "Log a phone call with a contact: when, how long, and what was said.",
        },
    ),
    (
        "billing",
        "the billing system",
        PLAIN,
        [
            (
                "invoice",
                "invoices",
                "An invoice asks a customer for payment by a due date.",
                "due_date",
                "day by which it must be paid",
            ),
            (
                "credit_note",
                "credit notes",
                "A credit note corrects an invoice that was too high.",
                "invoice_id",
                "the invoice it corrects",
            ),
            (
                "subscription",
                "subscriptions",
                "A subscription charges a customer for a plan each month or year.",
                "plan",
                "which plan",
            ),
            (
                "coupon",
                "coupons",
                "A coupon gives a discount on a subscription for a while.",
                "percent_off",
                "discount in percent",
            ),
        ],
        {
            "send_invoice": "Email a finalised invoice to the customer who has to pay it.",
            "refund_payment": "Give a customer their money back for a charge, in full or in part.",
            "void_invoice": "Void an invoice that was issued by mistake; it stays in the books as void.",
            "send_payment_reminder": "Remind a customer of an invoice that is overdue.",
            "pause_subscription": "Pause charging a subscription until a date.",
        },
    ),
    (
        "helpdesk",
        "the help desk",
        CAMEL,
        [
            (
                "ticket",
                "tickets",
                "A ticket is a customer's question or complaint that support works on.",
                "priority",
                "how urgent it is",
            ),
            (
                "macro",
                "macros",
                "A macro is a canned reply that agents insert with one click.",
                "body",
                "text of the reply",
            ),
            (
                "article",
                "articles",
                "An article of the knowledge base explains something to customers.",
                "section",
                "where it is filed",
            ),
            (
                "satisfaction rating",
                "satisfaction ratings",
                "A rating is what a customer thought of our support.",
                "score",
                "good or bad",
            ),
        ],
        {
            "assign ticket": "Hands a ticket to an agent or a group.",
            "escalate ticket": "Escalates a ticket to the second level, with a reason.",
            "reply to ticket": "Answers the customer on a ticket; they get it by email.",
            "merge tickets": "Joins tickets about the same problem into one.",
        },
    ),
    (
        "calendar",
        "the calendar",
        PLAIN,
        [
            (
                "event",
                "events",
                "An event is a meeting or an appointment with a time and guests.",
                "attendees",
                "email addresses of the guests",
            ),
            (
                "room_booking",
                "room bookings",
                "A room booking reserves a conference room.",
                "room",
                "which room",
            ),
            (
                "reminder",
                "reminders",
                "A reminder pops up at a time of your choice.",
                "remind_at",
                "when it pops up",
            ),
        ],
        {
            "find_free_slots": "Find times at which all of several people are available.",
            "respond_to_invitation": "Accept, decline or tentatively accept an invitation to an event.",
            "set_working_hours": "Set the hours at which a person can be booked, and their time zone.",
        },
    ),
    (
        "mail",
        "the mailbox",
        CAMEL,
        [
            ("draft", "drafts", "A draft is an email that was not sent yet.", "subject", "subject line"),
            ("label", "labels", "A label sorts emails, as a folder does.", "color", "colour shown"),
            (
                "filter",
                "filters",
                "A filter sorts incoming emails by rules.",
                "criteria",
                "which emails it applies to",
            ),
        ],
        {
            "send email": "Sends an email to one or more recipients, with attachments.",
            "search inbox": "Looks through received emails by sender, words and date.",
            "forward email": "Passes an email on to another person.",
            "set vacation responder": "Turns the out-of-office auto-reply on or off.",
            "unsubscribe": "Opts out of a mailing list.",
        },
    ),
    (
        "chat",
        "the team chat",
        CAMEL,
        [
            (
                "channel",
                "channels",
                "A channel is where a team talks about one topic.",
                "topic",
                "what it is about",
            ),
            ("reaction", "reactions", "A reaction is an emoji on a message.", "emoji", "name of the emoji"),
            (
                "user group",
                "user groups",
                "A user group can be mentioned all at once.",
                "handle",
                "handle such as @oncall",
            ),
        ],
        {
            "post message": "Writes a message into a channel.",
            "send direct message": "Writes a private message to one colleague.",
            "pin message": "Pins a message to the top of a channel.",
            "set status": "Sets a person's status text and emoji, such as In a meeting.",
            "search messages": "Looks for what was written in all channels.",
        },
    ),
    (
        "repo",
        "the code host",
        PLAIN,
        [
            (
                "branch",
                "branches",
                "A branch is a line of development of a git repository.",
                "base",
                "commit or branch to start from",
            ),
            (
                "pull_request",
                "pull requests",
                "A pull request proposes commits for review.",
                "reviewers",
                "who is asked to review",
            ),
            (
                "issue",
                "issues",
                "An issue tracks a bug or a feature wish of a repository.",
                "labels",
                "labels such as bug",
            ),
            (
                "release",
                "releases",
                "A release is a tagged version with notes and downloads.",
                "tag",
                "git tag",
            ),
        ],
        {
            "merge_pull_request": "Merge a pull request that was approved, by merge, squash or rebase.",
            "request_changes": "Review a pull request and ask its author for changes.",
            "read_file": "Read a file of a repository at a commit.",
            "compare_commits": "Show the diff between two commits, tags or branches.",
            "search_code": "Search source code over all repositories.",
        },
    ),
    (
        "ci",
        "the build service",
        TERSE,
        [
            (
                "pipeline",
                "pipelines",
                "A pipeline says which jobs build and test a project.",
                "config",
                "YAML of its jobs",
            ),
            ("runner", "runners", "A runner is a machine that executes jobs.", "os", "operating system"),
            (
                "secret",
                "secrets",
                "A secret is a variable that jobs see and logs do not.",
                "value",
                "what is kept secret",
            ),
            (
                "artifact",
                "artifacts",
                "An artifact is a file that a job produced.",
                "expires",
                "days it is kept",
            ),
        ],
        {
            "trigger_build": "Run a pipeline on a branch now.",
            "retry_job": "Run a failed job again.",
            "job_log": "Read the output of a job.",
            "cancel_build": "Stop a pipeline that is running.",
        },
    ),
    (
        "deploy",
        "the deployment platform",
        PLAIN,
        [
            (
                "service",
                "services",
                "A service is an application that runs in the cluster.",
                "image",
                "container image",
            ),
            (
                "environment",
                "environments",
                "An environment is where services run: staging, production.",
                "region",
                "cloud region",
            ),
            (
                "feature_flag",
                "feature flags",
                "A feature flag turns a feature on for some users.",
                "rollout",
                "percentage of users",
            ),
        ],
        {
            "deploy_version": "Roll a version of a service out to an environment.",
            "rollback": "Bring a service back to the version that ran before.",
            "scale_service": "Set how many replicas of a service run.",
            "restart_service": "Restart all instances of a service one after the other.",
            "service_logs": "Read what a service wrote to its logs.",
        },
    ),
    (
        "monitor",
        "the monitoring system",
        TERSE,
        [
            (
                "alert",
                "alerts",
                "An alert fires when a metric crosses a threshold.",
                "threshold",
                "value that fires it",
            ),
            ("dashboard", "dashboards", "A dashboard draws metrics as graphs.", "panels", "graphs on it"),
            (
                "incident",
                "incidents",
                "An incident is an outage that people are working on.",
                "severity",
                "1 is the worst",
            ),
            (
                "uptime_check",
                "uptime checks",
                "An uptime check probes a URL every minute.",
                "url",
                "address to probe",
            ),
        ],
        {
            "acknowledge_alert": "Tell the others that you are looking at an alert.",
            "silence_alert": "Mute an alert for some hours.",
            "query_metrics": "Evaluate a metric over a time range: CPU, memory, latency, error rate.",
            "who_is_on_call": "Say who has the pager for a team right now.",
        },
    ),
    (
        "db",
        "the data warehouse",
        TERSE,
        [
            ("table", "tables", "A table holds rows of typed columns.", "columns", "names and types"),
            ("view", "views", "A view is a stored SELECT.", "sql", "the statement"),
            (
                "backup",
                "backups",
                "A backup is a snapshot of a database to restore from.",
                "retention",
                "days it is kept",
            ),
        ],
        {
            "run_query": "Run a SQL statement that only reads, and return rows.",
            "explain_query": "Show the plan of a SQL statement, to see why it is slow.",
            "restore_backup": "Restore a database to a point in time.",
            "grant_access": "Let a role read or write a table.",
        },
    ),
    (
        "shop",
        "the online shop",
        PLAIN,
        [
            (
                "product",
                "products",
                "A product is an article with price and pictures.",
                "price",
                "price with tax",
            ),
            (
                "order",
                "orders",
                "An order is what a shopper bought, with addresses.",
                "items",
                "products and quantities",
            ),
            (
                "review",
                "reviews",
                "A review is a shopper's opinion of a product, with stars.",
                "stars",
                "1 to 5",
            ),
            (
                "gift_card",
                "gift cards",
                "A gift card is worth an amount in the shop.",
                "balance",
                "what is left on it",
            ),
        ],
        {
            "cancel_order": "Cancel an order that was not shipped yet.",
            "track_shipment": "Say where a parcel is and when it arrives.",
            "start_return": "Send a shopper a label to send goods back.",
            "change_price": "Change what a product costs, now or from a date.",
        },
    ),
    (
        "stock",
        "the warehouse system",
        CAMEL,
        [
            (
                "item",
                "items",
                "An item is a physical good on a shelf, with a SKU.",
                "sku",
                "stock keeping unit",
            ),
            (
                "purchase order",
                "purchase orders",
                "A purchase order buys goods from a supplier.",
                "supplier",
                "who delivers",
            ),
            (
                "supplier",
                "suppliers",
                "A supplier is a vendor that delivers goods to us.",
                "lead time",
                "days until delivery",
            ),
            (
                "stocktake",
                "stocktakes",
                "A stocktake compares the shelves with the books.",
                "zone",
                "part of the warehouse",
            ),
        ],
        {
            "check stock level": "Says how many pieces of an item are on hand, and where.",
            "transfer stock": "Moves goods from one location to another.",
            "adjust quantity": "Corrects the quantity of an item, with a reason such as breakage.",
            "receive delivery": "Books goods in that a truck brought.",
        },
    ),
    (
        "hr",
        "the personnel system",
        PLAIN,
        [
            (
                "employee",
                "employees",
                "An employee is somebody who works here, with position and manager.",
                "manager",
                "who they report to",
            ),
            (
                "leave_request",
                "leave requests",
                "A leave request asks for vacation or other time off.",
                "days",
                "first and last day",
            ),
            (
                "job_opening",
                "job openings",
                "A job opening is a position we are hiring for.",
                "salary_range",
                "from and to",
            ),
            ("candidate", "candidates", "A candidate applied for a job opening.", "resume", "their CV"),
        ],
        {
            "approve_leave": "Approve or reject a leave request of somebody in your team.",
            "schedule_interview": "Arrange an interview of a candidate with members of the team.",
            "leave_balance": "Say how many days of vacation an employee has left.",
            "start_onboarding": "Begin the checklist for a new hire: laptop, badge, accounts.",
            "offboard_employee": "Begin the checklist for somebody who leaves the company.",
        },
    ),
    (
        "payroll",
        "the payroll system",
        TERSE,
        [
            (
                "payslip",
                "payslips",
                "A payslip says what an employee earned in a month, and the deductions.",
                "month",
                "which month",
            ),
            ("bonus", "bonuses", "A bonus is paid on top of the salary.", "amount", "before taxes"),
            (
                "expense_claim",
                "expense claims",
                "An expense claim asks for money that an employee laid out.",
                "receipts",
                "pictures of receipts",
            ),
            ("time_sheet", "time sheets", "A time sheet holds hours worked a day.", "hours", "hours by day"),
        ],
        {
            "reimburse_expense": "Pay an approved expense claim out.",
            "change_salary": "Give an employee another salary from a month on.",
            "set_bank_details": "Set the account to which an employee's pay is sent.",
        },
    ),
    (
        "travel",
        "the travel desk",
        CAMEL,
        [
            (
                "flight booking",
                "flight bookings",
                "A booking of a seat on a plane.",
                "cabin",
                "economy or business",
            ),
            (
                "hotel booking",
                "hotel bookings",
                "A booking of a room for some nights.",
                "nights",
                "check-in and check-out",
            ),
            ("train ticket", "train tickets", "A ticket for a rail journey.", "seat", "window or aisle"),
            ("rental car", "rental cars", "A car hired for some days.", "pick up", "where it is picked up"),
        ],
        {
            "search flights": "Compares flights between two airports on a day, by price and duration.",
            "check visa rules": "Says whether a traveller needs a visa for a country.",
            "request travel approval": "Asks the manager to approve a trip and its budget.",
        },
    ),
    (
        "drive",
        "the document store",
        CAMEL,
        [
            ("file", "files", "A file lies in a folder and has versions.", "folder", "where it lies"),
            ("folder", "folders", "A folder holds files and folders.", "parent", "folder it lies in"),
            (
                "comment",
                "comments",
                "A comment is a remark on a passage of a document.",
                "anchor",
                "which passage",
            ),
        ],
        {
            "share file": "Gives a person or a group access to a file, to view or to edit.",
            "restore version": "Brings an older version of a file back.",
            "convert to pdf": "Turns a document into a PDF.",
            "revoke access": "Takes a person's access to a file away.",
        },
    ),
    (
        "cms",
        "the company website",
        PLAIN,
        [
            (
                "page",
                "pages",
                "A page of the website, with a path and content.",
                "path",
                "path such as /about",
            ),
            ("blog_post", "blog posts", "A blog post, with author and date.", "author", "who wrote it"),
            (
                "redirect",
                "redirects",
                "A redirect sends visitors of an old address to a new one.",
                "target",
                "new address",
            ),
            (
                "media_asset",
                "media assets",
                "A media asset is a picture or a video.",
                "alt_text",
                "words for those who cannot see it",
            ),
        ],
        {
            "publish_page": "Make a draft of a page visible to the public.",
            "unpublish_page": "Take a page offline.",
            "translate_page": "Have a page translated to another language.",
        },
    ),
    (
        "marketing",
        "the marketing suite",
        TERSE,
        [
            (
                "campaign",
                "campaigns",
                "A campaign sends messages to an audience on a schedule.",
                "audience",
                "who gets it",
            ),
            (
                "segment",
                "segments",
                "A segment is a group of recipients with something in common.",
                "rule",
                "who belongs to it",
            ),
            (
                "landing_page",
                "landing pages",
                "A landing page is where an ad leads to, with a form.",
                "form",
                "fields of the form",
            ),
            ("ad", "ads", "An ad is shown on search engines and social networks.", "budget", "daily spend"),
        ],
        {
            "ab_test": "Try two variants of a mail on a part of the audience and keep the better one.",
            "schedule_social_post": "Plan a post on social networks for a time.",
            "campaign_statistics": "Opens, clicks and conversions of a campaign.",
        },
    ),
    (
        "iam",
        "the identity service",
        PLAIN,
        [
            (
                "user",
                "users",
                "A user can sign in with a password or single sign-on.",
                "username",
                "sign-in name",
            ),
            ("role", "roles", "A role is a set of permissions.", "permissions", "what it allows"),
            ("api_key", "api keys", "An API key lets a program sign in.", "scopes", "what it may do"),
            ("group", "groups", "A group gives its members roles.", "members", "who is in it"),
        ],
        {
            "reset_password": "Send a user a link with which they choose a new password.",
            "unlock_user": "Let a user in again who was locked out after too many failed attempts.",
            "reset_mfa": "Remove the second factor of a user who lost their phone.",
            "audit_log": "Say who did what and when, for compliance.",
            "rotate_api_key": "Replace an API key by a fresh one and let the old one expire.",
        },
    ),
    (
        "legal",
        "the contract archive",
        PLAIN,
        [
            (
                "contract",
                "contracts",
                "A contract binds us and another party until it ends.",
                "counterparty",
                "the other party",
            ),
            (
                "clause",
                "clauses",
                "A clause is a reusable paragraph of contracts.",
                "wording",
                "text of the paragraph",
            ),
            (
                "nda",
                "ndas",
                "A non-disclosure agreement keeps things confidential.",
                "valid_until",
                "last day",
            ),
        ],
        {
            "request_signature": "Send a document to people who sign it electronically.",
            "expiring_contracts": "List contracts that end or renew themselves soon.",
            "compare_versions": "Show what was changed between two drafts of a contract.",
        },
    ),
    (
        "fleet",
        "the facilities and vehicles office",
        TERSE,
        [
            ("vehicle", "vehicles", "A vehicle is a car or van of the company.", "plate", "license plate"),
            (
                "repair",
                "repairs",
                "A repair mends something broken in a building or vehicle.",
                "location",
                "where it is broken",
            ),
            ("desk", "desks", "A desk can be reserved for a day in the office.", "floor", "which floor"),
            (
                "visitor",
                "visitors",
                "A visitor is announced at the reception and gets a badge.",
                "host",
                "whom they visit",
            ),
        ],
        {
            "set_temperature": "Make a room warmer or cooler.",
            "order_supplies": "Order paper, toner, coffee and the like.",
            "open_door": "Unlock a door of the building from afar for a few seconds.",
        },
    ),
    (
        "finance",
        "the general ledger",
        CAMEL,
        [
            (
                "journal entry",
                "journal entries",
                "A journal entry moves an amount between accounts of the books.",
                "debit",
                "account debited",
            ),
            (
                "budget",
                "budgets",
                "A budget is what a department may spend in a year.",
                "department",
                "whose",
            ),
            (
                "bank transaction",
                "bank transactions",
                "A bank transaction is a line of a bank statement.",
                "value date",
                "day it counts",
            ),
            (
                "tax rate",
                "tax rates",
                "A tax rate is the VAT or sales tax of a country.",
                "country",
                "where it applies",
            ),
        ],
        {
            "reconcile account": "Matches bank transactions with what is in the books.",
            "convert currency": "Converts an amount at the exchange rate of a day.",
            "profit and loss": "Reports income and costs over a period.",
            "pay vendor bill": "Transfers money to a vendor for a bill.",
        },
    ),
    (
        "survey",
        "the survey tool",
        TERSE,
        [
            ("survey", "surveys", "A survey asks people questions.", "questions", "what is asked"),
            (
                "response",
                "responses",
                "A response is what one person answered.",
                "respondent",
                "who answered",
            ),
            ("panel", "panels", "A panel is a pool of people who agreed to be asked.", "size", "how many"),
        ],
        {
            "send_survey": "Invite people to a survey by email.",
            "summarise_answers": "Summarise what people answered in free text.",
        },
    ),
]

COMMON = {
    "get": ("id", "id of the one wanted"),
    "fetch": ("id", "id of the one wanted"),
    "show": ("id", "id of the one wanted"),
    "delete": ("id", "id of the one to delete"),
    "remove": ("id", "id of the one to remove"),
    "archive": ("id", "id of the one to put away"),
    "list": ("page", "number of the page"),
    "search": ("query", "words to look for"),
    "find": ("query", "words to look for"),
    "all": ("filter", "field and value"),
    "count": ("group_by", "field to group by"),
    "export": ("since", "only those changed since this day"),
}


class Listed:
    """A tool that says its own name: all that is of interest is whether it is found."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    async def call(self, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        return ToolOutput(f"{self.spec.name} done")

    async def undo(self, call: Any, ctx: ToolContext) -> None:
        raise NotImplementedError

    async def reconcile(self, call: Any, ctx: ToolContext) -> Any:
        raise NotImplementedError


def _named(prefix: str, phrase: str, *, camel: bool) -> str:
    parts = phrase.replace("_", " ").split()
    if camel:
        return prefix + "".join(part.capitalize() for part in parts)
    return "_".join([prefix, *parts])


def _specs() -> Iterator[ToolSpec]:
    for prefix, system, style, objects, further in SYSTEMS:
        camel = style is CAMEL
        for singular, several, extra_of, extra, meaning in objects:
            phrase = singular.replace("_", " ")
            for name, text in style.items():
                phrases = {
                    "o": phrase,
                    "os": several,
                    "s": system,
                    "n": extra_of,
                    "a": "an" if phrase[0] in "aeiou" else "a",
                }
                verb = name.split(" " if camel else "_")[0]
                key, meaning_of = COMMON.get(verb, (extra.replace(" ", "_"), meaning))
                yield _spec(
                    _named(prefix, name.format(**phrases), camel=camel),
                    text.format(**phrases),
                    key,
                    meaning_of,
                )
        for name, text in further.items():
            yield _spec(_named(prefix, name, camel=camel), text, "id", "which one")


def _spec(name: str, description: str, parameter: str, parameter_meaning: str) -> ToolSpec:
    properties = {parameter: {"type": "string", "description": parameter_meaning}}
    return ToolSpec(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": [parameter]},
        read_only=True,
        declared=True,
    )


def tools() -> list[Listed]:
    """Return all tools, in the order of the systems."""
    return [Listed(spec) for spec in _specs()]
