"""Forms of credentials for tests of redaction; values are made at run time from a seed, and none is stored.

In a form ``a40`` is forty letters and digits, ``x32`` hexadecimal digits, ``d9`` digits, ``u16`` upper-case letters and
digits, each in angle brackets. The text outside the brackets is the vendor's own, from its documentation.
"""

import base64
import re
from random import Random
from string import ascii_letters, ascii_uppercase, digits

ALPHABETS = {
    "a": ascii_letters + digits,
    "x": "0123456789abcdef",
    "d": digits,
    "u": ascii_uppercase + digits,
    "+": ascii_letters + digits + "+/",
}
_BLANK = re.compile(r"<([axdu+])(\d+)>")
ALONE = [
    "sk-ant-api03-<a80>AA", "sk-proj-<a48>T3BlbkFJ<a20>", "sk-<a20>T3BlbkFJ<a20>", "AKIA<u16>", "ghp_<a36>",
    "github_pat_<a22>_<a59>", "glpat-<a20>", "glrt-<a20>", "xoxb-<d12>-<d12>-<a24>",
    "https://hooks.slack.com/services/T<u8>/B<u8>/<a24>", "https://discord.com/api/webhooks/<d18>/<a68>",
    "sk_live_<a24>", "SK<x32>", "AC<x32>", "SG.<a22>.<a43>", "key-<x32>", "AIza<a35>", "GOCSPX-<a28>", "ya29.<a60>",
    "eyJ<a30>.eyJ<a60>.<a43>", "npm_<a36>", "pypi-AgEIcHlwaS5vcmc<a80>", "hf_<a34>", "dckr_pat_<a27>", "dop_v1_<x64>",
    "hvs.<a90>", "s.<a24>", "dapi<x32>", "lin_api_<a40>", "secret_<a43>", "ntn_<a46>", "shpat_<x32>", "figd_<a40>",
    "<d9>:AA<a33>", "sntrys_<a60>", "glsa_<a32>_<x8>", "gsk_<a52>", "xai-<a80>", "pplx-<a48>",
    "AGE-SECRET-KEY-1<u58>", "PMAK-<x24>-<x34>", "sbp_<x40>", "pscale_pw_<a43>",
]  # fmt: skip
BEHIND = [
    "aws_secret_access_key = <+40>",
    "AWS_SESSION_TOKEN=<a200>",
    "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=<a86>==",
    "https://acc.blob.core.windows.net/c?sv=2020-08-04&sig=<a43>%3D",
    "postgres://bob:<a16>@db/x",
    "Authorization: Basic <b14>",
    "Authorization: Bearer <a40>",
    "-----BEGIN RSA PRIVATE KEY-----\n<+64>\n<+64>\n<+64>\n<+40>==\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n<+70>\n<+70>\n<+44>=\n-----END OPENSSH PRIVATE KEY-----",
    "DB_PASSWORD=<a12>",
    "password: <a12>",
    '"password": "<a12>"',
    "curl -u admin:<a14>",
    "mysql --password <a14>",
    "mysql -p<a14>",
    "HEROKU_API_KEY=<x8>-<x4>-<x4>-<x4>-<x12>",
    "CF_API_TOKEN=<a40>",
    "DD_API_KEY=<x32>",
    "The admin password is <a14>",
    "Cookie: session=<a40>",
    "Set-Cookie: sid=<a32>",
    "x-api-key: <a32>",
    "machine github.com login bob password <a20>",
    "ALTER USER bob WITH PASSWORD '<a14>'",
    "Server=db;User Id=sa;Password=<a14>",
    "https://x.org/cb?access_token=<a40>",
    "  token: <a40>",
    "client_secret=<a32>",
]
VENDORS = [
    'sk-or-v1-<x64>', 'sk-<x32>', 'sk-<x48>', 'r8_<a37>', 'nvapi-<a64>', 'pcsk_<a5>_<a60>', 'tvly-<a32>',
    'tvly-dev-<a32>', 'ATATT3xFfGF0<a180>=<u8>', 'ABSK<a120>=', '1//0<a60>', '1//0g<a40>-<a40>',
    'xkeysib-<x64>-<a16>', 'NRAK-<u27>', 'tskey-auth-<a12>CNTRL-<a32>', 'tskey-api-<a17>-<a32>',
    'sb_secret_<a22>_<a8>', 'sb_publishable_<a22>_<a8>', 'dp.st.dev.<a43>', 'dp.pt.<a43>', 'FlyV1 fm2_<a120>',
    'dckr_oat_<a32>', 'rubygems_<x48>', 'sk-svcacct-<a74>T3BlbkFJ<a74>', 'sk-admin-<a74>T3BlbkFJ<a74>',
    'sk-ant-admin01-<a80>AA', 'sk-ant-oat01-<a80>AA', 'gho_<a36>', 'ghu_<a36>', 'ghs_<a36>', 'ghr_<a76>',
    'gldt-<a20>', 'glcbt-<d2>_<a20>', 'glptt-<x40>', 'xoxp-<d12>-<d12>-<d12>-<x32>', 'xapp-1-A<u10>-<d13>-<x64>',
    'xoxe.xoxp-1-<a146>', 'rk_live_<a24>', 'whsec_<a32>', 'sk_test_<a24>', 'shpss_<x32>', 'EAACEdEose0cBA<a100>',
    'EAAG<a150>', 'sq0atp-<a22>', 'EAAAE<a59>', 'access_token$production$<u16>$<x32>', 'doo_v1_<x64>', 'hvb.<a90>',
    'b.AAAAAQ<a120>', 'atlasv1.<a60>', '<a14>.atlasv1.<a60>', 'ops_eyJ<a200>', 'LTAI<a20>', 'AKID<a32>', 'phc_<a43>',
    'phx_<a43>', 'sntryu_<x64>', 'NRJS-<x19>', 'NRII-<a32>', 'eyJrIjoi<a70>', 'glc_<a60>', 'fio-u-<a64>',
    'lin_oauth_<x64>', 'pul-<x40>', 'cfut_<a40>', 'v1.0-<x24>-<x146>', 'r_<a40>', 'CLOJARS_<x60>', 'oy2<x43>',
    'pypi-AgENdGVzdC5weXBp<a80>', 'ico-<a32>', 'pnu_<a36>', 'rdme_<x70>', 'pat<a14>.<x64>', 'sl.<a130>',
    'sl.u.<a130>', 'figo_<a40>', 'ckey_<a30>', 'live_<a35>', 'test_<a35>', 'duffel_test_<a43>', 'EZAK<a54>',
    'FLWSECK-<x32>-X', 'sgp_<x16>_<x40>', 'sgp_<x40>', 'shippo_live_<x40>', 'tfp_<a44>', 'mg-<x32>-x', 'fw_<a24>',
    'co-<a40>', 'jina_<x32><a28>', 'voy-<a40>', 'pa-<a43>', 'AIzaSy<a33>', 'AQ.Ab<a50>', 'ya29.a0<a100>', 'csk-<a48>',
    'tgp_v1_<a43>', 'together_<x64>', 'fc-<x32>', 'e2b_<x40>', 'lsv2_pt_<x32>_<x10>', 'lsv2_sk_<x32>_<x10>',
    'pk-lf-<x8>-<x4>-<x4>-<x4>-<x12>', 'sk-lf-<x8>-<x4>-<x4>-<x4>-<x12>', 'bfl_<a40>', 'up_<a30>', 'rpa_<a46>',
    'hf_oauth_<a60>', 'api_org_<a34>', 'wandb_v1_<a60>', 'vcp_<a56>', 'vercel_blob_rw_<a16>_<a30>', 'nfp_<a40>',
    'rnd_<a28>', 'railway_<a36>', 'neon_<a60>', 'napi_<a64>', 'sbp_oauth_<x40>', 'pscale_tkn_<a43>',
    'pscale_oauth_<a43>', 're_<a8>_<a24>', '<x32>-us21', 'pk.eyJ1<a60>.<a22>', 'sk.eyJ1<a60>.<a22>', 'ddp_<a36>',
    'ddapp_<a40>', 'dt0c01.<u24>.<u64>', 'CFPAT-<a43>', 'jtk_<a40>', 'xau-<a40>', 'bkua_<x40>', 'cio_<a40>',
    'CCIPAT_<a22>_<x40>', 'tk-<a40>', 'AGE-SECRET-KEY-PQ-1<u200>',
    '-----BEGIN EC PRIVATE KEY-----\n<+64>\n<+64>\n<+32>==\n-----END EC PRIVATE KEY-----', 'xprv<a107>',
]  # fmt: skip
"""Forms of further vendors, as their rules of 2026 describe them."""
PLACES = [
    'Cookie: theme=dark; sid=<a32>', 'curl -u AC<x32>:<x32> https://api.twilio.com', '<password><a12></password>',
    'SMTP_PASS=<a12>', 'machine api.x.io\n  login bob\n  password <a16>', '"auths": {"ghcr.io": {"auth": "<b14>"}}',
    'client-key-data: LS0tLS1CRUdJTiB<a400>=', 'docker login -u bob -p <a16> ghcr.io', 'sshpass -p <a12> ssh bob@x',
    'https://<a40>@github.com/x/y.git', "CREATE USER bob IDENTIFIED BY '<a14>'",
    '{"kty":"EC","crv":"P-256","d":"<a43>"}', 'PGPASSWORD=<a14> psql', 'redis://:<a20>@cache:6379/0',
    'mongodb+srv://bob:<a16>@c.mongodb.net/x', '--token <a30>', 'X-Auth-Token: <a32>', 'password = "<a12>"',
    'Pwd=<a12>;', '<add key="Password" value="<a12>"/>', 'api-key: <a32>', 'apikey=<a32>', 'refresh_token=<a60>',
    'id_token=<a60>', 'Proxy-Authorization: Basic <b14>', 'X-Amz-Security-Token=<a200>', 'X-Amz-Signature=<x64>',
    '-Dspring.datasource.password=<a12>', 'keytool -storepass <a12>', 'openssl rsa -passin pass:<a14>',
    'smbclient -U bob%<a12> //x/y', 'ansible_ssh_pass=<a12>', 'ansible_become_password: <a12>',
    "SECRET_KEY = '<a50>'", 'SECRET_KEY_BASE=<x128>', 'JWT_SECRET=<a40>', 'ENCRYPTION_KEY=<x64>',
    'SharedAccessKey=<+43>=', 'SharedAccessSignature=sv=2020&sig=<a43>%3D', 'otpauth://totp/x?secret=<u32>',
    'the token is <a40>', 'passphrase: <a20>', 'htpasswd -bc .htpasswd bob <a14>',
    'echo <a40> | docker login --password-stdin', 'vault login <a26>', 'X-Vault-Token: hvs.<a24>',
    'PRIVATE-TOKEN: <a20>', '_authToken=<a36>', '//registry.npmjs.org/:_authToken=<a36>', '_auth=<b14>',
    'aws_session_token = <a200>', 'account_key: <a86>==', '?code=<a40>&state=x', '&access_token=<a40>',
    'ClientSecret: <a34>', 'client-secret: <a40>', 'webhook_secret=<a32>', 'wifi psk=<a14>', 'psk: <a14>',
    'enable secret 5 $1$<a4>$<a22>', 'user:$6$<a8>$<a86>:1:', '$2b$12$<a53>', 'ssh bob:<a14>@host',
    'git clone https://bob:<a40>@x.io/y', "git config http.extraheader 'AUTHORIZATION: bearer <a40>'",
    'kubectl config set-credentials x --token=<a60>', 'BEGIN: Token token=<a40>', 'Authorization: Token <x40>',
    'Authorization: token ghp_<a36>', 'Authorization: <a40>', 'Authorization: Digest username="a", response="<x32>"',
    'Authorization: AWS4-HMAC-SHA256 Credential=AKIA<u16>/2024, Signature=<x64>',
    'DATABASE_URL=mysql://bob:<a16>@h/x', 'AZURE_CLIENT_SECRET=<a3>8Q~<a34>', 'NUGET_API_KEY=oy2<x43>',
    'SENTRY_DSN=https://<x32>@o1.ingest.sentry.io/1', 'TWILIO_AUTH_TOKEN=<x32>', 'STRIPE_KEY=sk_live_<a99>',
    'ALGOLIA_ADMIN_KEY=<x32>', 'CLOUDINARY_URL=cloudinary://<d15>:<a27>@x', 'MAILCHIMP=<x32>-us10',
    '-e MYSQL_ROOT_PASSWORD=<a14>', 'export GH_TOKEN=<x40>', 'set PASSWORD=<a12>', '$env:API_KEY = "<a32>"',
    'password <a14>', 'my password: <a14>', '"secretAccessKey": "<+40>"', 'secretKey: "<+40>"',
    '"private_key": "<a60>"', '"pass": "<a12>"', "auth: { user: 'a', pass: '<a14>' }",
]  # fmt: skip
"""Further places where something before or around a value says that it is secret."""
FORMS = [*ALONE, *BEHIND, *VENDORS, *PLACES]


def made(form: str, seed: int) -> tuple[str, list[str]]:
    """Return a text of that form, and its secret parts."""
    chance, secret = Random(f"{form} {seed}"), []

    def drawn(match: re.Match[str]) -> str:
        value = "".join(chance.choices(ALPHABETS[match[1]], k=int(match[2])))
        secret.append(value)
        return value

    text = _BLANK.sub(drawn, form)
    if "<b14>" in text:
        secret = [base64.b64encode(f"bob:{''.join(chance.choices(ALPHABETS['a'], k=14))}".encode()).decode()]
        text = text.replace("<b14>", secret[0])
    return text, [part for part in secret if len(part) > 8 or len(secret) == 1]
