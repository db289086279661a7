"""Apache ActiveMQ Artemis, from Maven Central."""

from pathlib import Path

from tests import ivy
from tests.wire.links.amqp1 import servers
from tests.wire.links.amqp1.servers import (
    BARE,
    DEAD_LETTERS,
    LOSING,
    OPEN_TOPIC,
    PASSWORD,
    SMALL,
    TOPIC,
    USER,
)

VERSION = "2.40.0"
_BOOTSTRAP = """<broker xmlns="http://activemq.apache.org/schema">
<jaas-security domain="activemq"/><server configuration="file:{}"/></broker>"""
_LOGIN = """activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
};"""
_PERMISSIONS = "createAddress createNonDurableQueue createDurableQueue consume browse send manage"


class Artemis(servers.Server):
    """A node with its default limits: ten deliveries, 20,000 remembered ids."""

    name = "artemis"

    def jars(self):
        group = "org.apache.activemq"
        return ivy.classpath(
            [f"{group}:artemis-cli:{VERSION}", f"{group}:artemis-amqp-protocol:{VERSION}"]
        )

    @property
    def arguments(self):
        etc = self.folder / "etc"
        return [
            f"-Dartemis.home={self.folder}",
            f"-Dartemis.instance={self.folder}",
            f"-Dartemis.instance.etc={etc}",
            f"-Djava.security.auth.login.config={etc / 'login.config'}",
            "org.apache.activemq.artemis.cli.Artemis",
            "run",
        ]

    def configure(self):
        etc = self.folder / "etc"
        etc.mkdir()
        identity = self.authority.issue("127.0.0.1")
        pem = etc / "server.pem"
        pem.write_text("".join(Path(path).read_text() for path in identity))
        for name, text in {
            "broker.xml": self._broker(pem),
            "bootstrap.xml": _BOOTSTRAP.format(etc / "broker.xml"),
            "management.xml": '<management-context xmlns="http://activemq.apache.org/schema"/>',
            "login.config": _LOGIN,
            "users.properties": f"{USER}={PASSWORD}\nguest=guest",
            "roles.properties": f"admin={USER}\nnobody=guest",
            "artemis.profile": "",
        }.items():
            (etc / name).write_text(text)

    def _broker(self, pem):
        permissions = "".join(
            f'<permission type="{each}" roles="admin"/>' for each in _PERMISSIONS.split()
        )
        addresses = "".join(
            f'<address name="{each}"><anycast><queue name="{each}"/></anycast></address>'
            for each in [*servers.QUEUES, BARE, *LOSING, SMALL, DEAD_LETTERS]
        )
        topics = "".join(
            f'<address name="{each}"><multicast/></address>' for each in (TOPIC, OPEN_TOPIC)
        )
        data = self.folder / "data"
        return f"""<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<journal-type>NIO</journal-type>
<journal-directory>{data}/journal</journal-directory>
<bindings-directory>{data}/bindings</bindings-directory>
<large-messages-directory>{data}/large</large-messages-directory>
<paging-directory>{data}/paging</paging-directory>
<journal-file-size>1M</journal-file-size>
<acceptors>
<acceptor name="amqp">tcp://127.0.0.1:{self.port}?protocols=AMQP</acceptor>
<acceptor name="amqps">tcp://127.0.0.1:{self.tls_port}?protocols=AMQP;sslEnabled=true;\
keyStorePath={pem};keyStoreType=PEM</acceptor>
</acceptors>
<security-settings><security-setting match="#">{permissions}</security-setting></security-settings>
<address-settings>
<address-setting match="#">
<auto-create-queues>false</auto-create-queues>
<auto-create-addresses>false</auto-create-addresses>
<default-address-routing-type>ANYCAST</default-address-routing-type>
</address-setting>
<address-setting match="open.#">
<auto-create-queues>true</auto-create-queues>
<auto-create-addresses>true</auto-create-addresses>
<default-address-routing-type>MULTICAST</default-address-routing-type>
</address-setting>
<address-setting match="q.#">
<dead-letter-address>{DEAD_LETTERS}</dead-letter-address>
</address-setting>
<address-setting match="{LOSING[0]}">
<dead-letter-address>nowhere</dead-letter-address>
</address-setting>
<address-setting match="{LOSING[1]}">
<dead-letter-address>{TOPIC}</dead-letter-address>
</address-setting>
<address-setting match="{SMALL}">
<max-size-bytes>5000</max-size-bytes><address-full-policy>FAIL</address-full-policy>
</address-setting>
</address-settings>
<addresses>{addresses}{topics}</addresses>
</core></configuration>"""
