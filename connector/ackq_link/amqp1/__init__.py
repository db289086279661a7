"""The adapter for AMQP 1.0 (Artemis, Qpid Broker-J), on the protocol engine of Qpid Proton."""
